"""LP101 to LP104: the four numbers that a server must take from the compile."""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import ServingConfig, Setting
from llmpack.validate.rules.fixes import replace_value
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome, Unknown
from llmpack.validate.rules.values import as_int, find_setting

NO_ARTIFACT = "no artifact is known; name it with --artifact"


def must_be_equal(config: ServingConfig, facts: ArtifactFacts) -> bool:
    """Whether the served numbers must equal the compiled ones: a fixed-shape artifact, or a server that needs one."""
    return facts.is_fixed_shape or config.target == "vllm-rbln"


def check_max_num_seqs(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP101: max_num_seqs against the compiled batch size."""
    yield from _check_limit(config, context, "max_num_seqs", "batch_size")


def check_max_model_len(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP102: max_model_len against the compiled sequence length."""
    yield from _check_limit(config, context, "max_model_len", "max_seq_len")


def check_max_num_batched_tokens(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP103: max_num_batched_tokens against what one compiled step takes."""
    name, facts = "max_num_batched_tokens", context.facts
    setting = find_setting(config, name)
    if facts is None or (setting is not None and not setting.is_known):
        yield from _unjudged(setting, facts)
    elif must_be_equal(config, facts):
        compiled = facts.max_num_batched_tokens
        if compiled is None and facts.kind == "llmpack":
            compiled = facts.max_seq_len
        yield from _compare(config, facts, name, compiled)
    elif setting is not None and facts.prefill_buckets:
        yield from _check_floor(config, setting, facts.prefill_buckets[-1])
    else:
        yield from _compare(config, facts, name, facts.max_num_batched_tokens)


def check_block_size(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP104: block_size against the blocks of the compiled cache."""
    facts, setting = context.facts, find_setting(config, "block_size")
    if facts is None or (setting is not None and not setting.is_known):
        yield from _unjudged(setting, facts)
        return
    served_len = find_setting(config, "max_model_len")
    if setting is not None and served_len is not None and not must_be_equal(config, facts):
        is_slot_cache = facts.kv_block_size == facts.max_seq_len
        if is_slot_cache and as_int(setting) == as_int(served_len) is not None:
            return
    yield from _compare(config, facts, "block_size", facts.kv_block_size, exact=True)


def _check_limit(config: ServingConfig, context: Context, name: str, fact: str) -> Iterator[Outcome]:
    setting, facts = find_setting(config, name), context.facts
    if facts is None or (setting is not None and not setting.is_known):
        yield from _unjudged(setting, facts)
    else:
        yield from _compare(config, facts, name, getattr(facts, fact))


def _unjudged(setting: Setting | None, facts: ArtifactFacts | None) -> Iterator[Outcome]:
    if setting is not None:
        reason = NO_ARTIFACT if facts is None else f"{setting.spelling} depends on a variable"
        yield Unknown(setting.location, reason)


def _compare(
    config: ServingConfig, facts: ArtifactFacts, name: str, compiled: int | None, *, exact: bool = False
) -> Iterator[Outcome]:
    setting = find_setting(config, name)
    if setting is None:
        yield from _missing(config, facts, name, compiled)
        return
    if compiled is None:
        yield Unknown(setting.location, f"{facts.fact_file} does not tell what {name} must be")
        return
    served, equal = as_int(setting), exact or must_be_equal(config, facts)
    if served is None or served == compiled or (1 <= served < compiled and not equal):
        return
    yield Discrepancy(
        setting.location,
        f"{setting.spelling} must be the compiled {compiled}" if equal else f"at most {compiled} was compiled",
        given=setting.value,
        compiled=compiled,
        relation="==" if equal else "<=",
        fix=replace_value(config, setting, compiled),
    )


def _missing(config: ServingConfig, facts: ArtifactFacts, name: str, compiled: int | None) -> Iterator[Outcome]:
    """Only a server whose default is another number must be told."""
    if config.target != "vllm-rbln" or config.kind in {"config.pbtxt", "env-file"}:
        return
    if compiled is None:
        yield Unknown(config.location, f"{facts.fact_file} does not tell what {name} must be")
        return
    yield Discrepancy(
        config.location,
        f"{name} is not given, and the engine's default is not the compiled {compiled}",
        compiled=compiled,
        relation="==",
    )


def _check_floor(config: ServingConfig, setting: Setting, bucket: int) -> Iterator[Outcome]:
    served = as_int(setting)
    if served is None or served >= bucket:
        return
    yield Discrepancy(
        setting.location,
        f"a step must have room for the largest prefill bucket, {bucket} tokens",
        given=setting.value,
        compiled=bucket,
        relation=">=",
        fix=replace_value(config, setting, bucket),
    )
