"""LP105 to LP109: the artifact that is served is the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import ServingConfig, Setting
from llmpack.validate.rules.fixes import replace_value
from llmpack.validate.rules.limits import NO_ARTIFACT
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome, PathState, Unknown
from llmpack.validate.rules.values import as_int, as_text, find_setting, is_path, is_placeholder

_COMMIT_LENGTH = 40
_DTYPES = {"half": "float16", "float": "float32", "fp16": "float16", "fp32": "float32", "bf16": "bfloat16"}
# What scripts for vLLM's plugin of compiled models say; llmpack's Python API runs them with only the import changed.
_COMPILED_DEVICE = "rbln"
_DEVICE_LISTS = ("CUDA_VISIBLE_DEVICES", "RBLN_DEVICES", "NEURON_RT_VISIBLE_CORES", "ROCR_VISIBLE_DEVICES")


def check_paths(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP105: the paths of the artifact and the tokenizer."""
    directory = find_setting(config, "compiled_model_dir")
    if directory is None and config.target == "vllm-rbln" and config.kind not in {"config.pbtxt", "env-file"}:
        yield Discrepancy(config.location, "compiled_model_dir is not given: there is nothing to serve")
    if directory is not None and (text := as_text(directory)) is not None:
        yield from _check_path(config, directory, context.paths.get(text, PathState(None)), must_be_artifact=True)
    for setting in (find_setting(config, "model"), find_setting(config, "tokenizer")):
        if setting is not None and (text := as_text(setting)) is not None and is_path(text):
            yield from _check_path(config, setting, context.paths.get(text, PathState(None)), must_be_artifact=False)


def _check_path(
    config: ServingConfig, setting: Setting, state: PathState, *, must_be_artifact: bool
) -> Iterator[Outcome]:
    text = str(setting.value)
    if not setting.is_known:
        yield Unknown(setting.location, f"{setting.spelling} depends on a variable")
    elif config.kind == "model.json" and not text.startswith("/"):
        fix = replace_value(config, setting, state.resolved) if state.resolved else None
        yield Discrepancy(
            setting.location,
            "the path is relative, and the server starts elsewhere than where this file lies",
            given=text,
            compiled=state.resolved,
            relation="absolute",
            fix=fix,
        )
    elif config.is_containerised:
        yield Unknown(setting.location, f"{setting.spelling} is a path inside a container")
    elif state.resolved is None:
        what = "is a placeholder to be filled in" if is_placeholder(text) else "does not exist"
        yield Discrepancy(setting.location, f"the path {what}", given=text, relation="exists")
    elif must_be_artifact and not state.is_artifact:
        yield Discrepancy(setting.location, "no compiled artifact lies there", given=text, relation="is an artifact")
    elif state.problem is not None:
        message = f"the artifact there cannot be read: {state.problem}"
        yield Discrepancy(setting.location, message, given=text, relation="is readable")
    elif must_be_artifact and state.is_the_artifact is False:
        yield Discrepancy(setting.location, "another artifact lies there", given=text, relation="is the artifact")


def check_source(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP106: model, tokenizer and revision are those that were compiled."""
    for name in ("model", "tokenizer"):
        setting = find_setting(config, name)
        text = None if setting is None else as_text(setting)
        if setting is not None and text is not None and not is_path(text) and not is_placeholder(text):
            yield from _check_model_id(config, context, setting, text)
    for name in ("revision", "tokenizer_revision"):
        setting = find_setting(config, name)
        if setting is not None and as_text(setting) is not None:
            yield from _check_revision(config, context, setting)


def _check_model_id(config: ServingConfig, context: Context, setting: Setting, text: str) -> Iterator[Outcome]:
    facts, state = context.facts, context.paths.get(text)
    if state is not None and state.resolved is not None and state.is_artifact:
        return
    if not setting.is_known or facts is None or facts.model_id is None:
        yield Unknown(setting.location, _why_unknown(setting, facts, "the source model"))
        return
    if text == facts.model_id or (not facts.is_hub_model and _last_part(text) == _last_part(facts.model_id)):
        return
    yield Discrepancy(
        setting.location,
        f"the artifact was compiled from {facts.model_id}",
        given=text,
        compiled=facts.model_id,
    )


def _last_part(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2]


def _check_revision(config: ServingConfig, context: Context, setting: Setting) -> Iterator[Outcome]:
    facts, text = context.facts, str(setting.value)
    if not setting.is_known or facts is None or facts.revision is None:
        yield Unknown(setting.location, _why_unknown(setting, facts, "the source revision"))
    elif len(text) != _COMMIT_LENGTH and text != facts.revision:
        yield Unknown(setting.location, f"whether {text} still names commit {facts.revision} only the hub can tell")
    elif text != facts.revision:
        yield Discrepancy(
            setting.location,
            "the artifact was compiled from another commit",
            given=text,
            compiled=facts.revision,
            fix=replace_value(config, setting, facts.revision),
        )


def check_tensor_parallel(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP107: ranks against the compile, the heads and the devices that are visible."""
    facts = context.facts
    setting = find_setting(config, "tensor_parallel_size")
    if setting is not None:
        yield from _check_ranks(config, facts, setting)
    for variable in config.environment:
        if variable.name in _DEVICE_LISTS and (text := as_text(variable)) is not None:
            yield from _check_device_count(facts, variable, text)


def _check_ranks(config: ServingConfig, facts: ArtifactFacts | None, setting: Setting) -> Iterator[Outcome]:
    if not setting.is_known or facts is None or facts.tensor_parallel_size is None:
        yield Unknown(setting.location, _why_unknown(setting, facts, "the number of ranks"))
        return
    served, compiled = as_int(setting), facts.tensor_parallel_size
    if served is None or served == compiled:
        return
    heads = facts.num_attention_heads
    illegal = f"; {served} does not even divide the {heads} heads" if heads and served and heads % served else ""
    yield Discrepancy(
        setting.location,
        f"the artifact was compiled for {compiled} ranks{illegal}",
        given=setting.value,
        compiled=compiled,
        fix=replace_value(config, setting, compiled),
    )


def _check_device_count(facts: ArtifactFacts | None, variable: Setting, text: str) -> Iterator[Outcome]:
    if not variable.is_known or facts is None or facts.tensor_parallel_size is None:
        yield Unknown(variable.location, _why_unknown(variable, facts, "the number of ranks"))
        return
    count = len([item for item in text.split(",") if item.strip()])
    if count < facts.tensor_parallel_size and "-" not in text:
        yield Discrepancy(
            variable.location,
            f"{count} devices are visible, the artifact needs {facts.tensor_parallel_size}",
            given=text,
            compiled=facts.tensor_parallel_size,
            relation=">=",
        )


def check_device(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP108: the device is one that can run the artifact."""
    setting, facts = find_setting(config, "device"), context.facts
    text = None if setting is None else as_text(setting)
    if setting is None or text is None or text == "auto":
        return
    if not setting.is_known or facts is None or facts.devices is None:
        yield Unknown(setting.location, _why_unknown(setting, facts, "the device"))
        return
    if text.lower().partition(":")[0] in facts.devices:
        return
    if config.target == "llmpack" and config.kind == "kwargs" and text == _COMPILED_DEVICE:
        message = f"{text} is taken for the device that was compiled for, {facts.devices[0]}"
        yield Discrepancy(setting.location, message, given=text, compiled=list(facts.devices), severity="note")
        return
    yield Discrepancy(
        setting.location,
        f"the artifact runs on {' or '.join(facts.devices)}",
        given=text,
        compiled=list(facts.devices),
        fix=replace_value(config, setting, facts.devices[0]) if len(facts.devices) == 1 else None,
    )


def check_precision(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP109: dtype, quantization and the cache's dtype are those that were compiled."""
    for name, fact in (("dtype", "dtype"), ("quantization", "quantization"), ("kv_cache_dtype", "kv_cache_dtype")):
        setting = find_setting(config, name)
        if setting is None or setting.value in (None, "", "auto", "none", "None"):
            continue
        compiled = None if context.facts is None else getattr(context.facts, fact)
        if not setting.is_known or compiled is None:
            yield Unknown(setting.location, _why_unknown(setting, context.facts, f"the {fact}"))
        elif _plain(str(setting.value)) != _plain(compiled):
            yield Discrepancy(
                setting.location,
                f"the artifact was compiled with {fact} {compiled}",
                given=setting.value,
                compiled=compiled,
                fix=replace_value(config, setting, compiled) if compiled != "none" else None,
            )


def _plain(name: str) -> str:
    short = name.lower().removeprefix("torch.").replace("-", "_")
    return _DTYPES.get(short, short)


def _why_unknown(setting: Setting, facts: ArtifactFacts | None, what: str) -> str:
    if not setting.is_known:
        return f"{setting.spelling} depends on a variable"
    return NO_ARTIFACT if facts is None else f"{facts.fact_file} does not tell {what}"
