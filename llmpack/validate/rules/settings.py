"""LP110 to LP112: keys, types, contradictions and features that were not compiled in."""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.model import Fix, JsonValue, ServingConfig, Setting, Severity
from llmpack.validate.rules.fixes import remove_entry, rename_key, replace_value
from llmpack.validate.rules.limits import NO_ARTIFACT
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome, Unknown
from llmpack.validate.rules.text import HIDDEN, SECRET_NAMES
from llmpack.validate.rules.values import as_bool, as_int, is_text
from llmpack.validate.vocabulary.engine_vocabulary import Use, ValueType, Vocabulary, find_vocabulary, similarity

_SAFE_SIMILARITY = 0.85
# Flags that may be given again; each occurrence adds to the others.
_REPEATABLE = frozenset(
    {"allowed_origins", "api_key", "lora_modules", "middleware", "served_model_name", "stop", "allowed_media_domains"}
)
# Variables that stand for a flag of the same name. Others do not: VLLM_PORT, for one, is a port between processes.
_VARIABLES = frozenset(
    {"max_num_seqs", "max_model_len", "max_num_batched_tokens", "tensor_parallel_size", "compiled_model_dir"}
)
_SCALABLE = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes"})
_FEATURES = {
    "speculative": ("speculative_config", "speculative_model", "num_speculative_tokens", "spec_model", "spec_tokens"),
    "lora": ("enable_lora", "lora_modules", "enable_prompt_adapter"),
    "pipeline": ("pipeline_parallel_size",),
    "prefix-caching": ("enable_prefix_caching",),
}


def check_keys(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP110: every key is known to the engine's release and has the type that it takes."""
    if config.kind not in {"model.json", "command-line", "kwargs"}:
        return
    found = find_vocabulary(config.target, config.engine_release or context.releases.get(config.target))
    if found is None:
        return
    vocabulary, release = found
    use: Use = "flags" if is_text(config) else "arguments"
    for setting in config.settings:
        name = setting.name.partition(".")[0]
        is_positional = config.kind == "command-line" and setting.key_span is None and setting.spelling == "model"
        if not is_positional and not vocabulary.knows(name, use, release):
            yield _describe_unknown_key(config, setting, vocabulary, (use, release))
        if "." not in setting.name:
            yield from _check_type(config, setting, vocabulary.type_of(name))


def _describe_unknown_key(
    config: ServingConfig, setting: Setting, vocabulary: Vocabulary, looked_up: tuple[Use, str | None]
) -> Discrepancy:
    use, release = looked_up
    engine, name = vocabulary.engine, setting.name
    removed, added = vocabulary.removed_in(name, use, release), vocabulary.first_with(name, use)
    if removed is not None:
        return _describe_removed(setting, vocabulary, looked_up, removed)
    if added is not None:
        message = f"{engine} {release} does not know {setting.spelling} yet; {added} does"
        return Discrepancy(setting.location, message, given=setting.spelling)
    nearest = vocabulary.nearest(name, use, release)
    hint = f"; the nearest key is {nearest}" if nearest else ""
    return Discrepancy(
        setting.location,
        f"{engine} does not know {setting.spelling}{hint}",
        given=setting.spelling,
        compiled=nearest,
        fix=_fix_unknown(config, setting, nearest),
    )


def _describe_removed(
    setting: Setting, vocabulary: Vocabulary, looked_up: tuple[Use, str | None], removed: str
) -> Discrepancy:
    """A warning while nobody has said which release serves: an older one takes the key."""
    use, release = looked_up
    last = vocabulary.last_with(setting.name, use)
    message = f"{vocabulary.engine} {removed} removed {setting.spelling}; it was last known to {last}"
    if release is None:
        message += ". Name an older server with --vllm-release"
    severity: Severity | None = "warning" if release is None else None
    fix = _fix_removed(setting)
    return Discrepancy(setting.location, message, given=setting.spelling, severity=severity, fix=fix)


def _fix_removed(setting: Setting) -> Fix | None:
    """Only where leaving the key out means the same to the release that removed it."""
    is_default_now = setting.name == "disable_log_requests" and as_bool(setting) is True
    return remove_entry(setting) if is_default_now else None


def _fix_unknown(config: ServingConfig, setting: Setting, nearest: str | None) -> Fix | None:
    """A rename is safe when the names are almost the same and the right one is not there already."""
    if nearest is None or any(other.name == nearest for other in config.settings):
        return None
    return rename_key(setting, nearest) if similarity(setting.name, nearest) >= _SAFE_SIMILARITY else None


def _check_type(config: ServingConfig, setting: Setting, kind: ValueType) -> Iterator[Outcome]:
    if not setting.is_known or setting.value is None:
        return
    is_right = _is_right_text(setting, kind) if is_text(config) else _is_right_json(setting.value, kind)
    if is_right:
        return
    meant = _convert(setting, kind)
    fix = None if meant is None or (is_text(config) and kind == "bool") else replace_value(config, setting, meant)
    yield Discrepancy(
        setting.location,
        f"{setting.spelling} takes {_NAMES[kind]}, not {_describe(setting.value)}",
        given=setting.value,
        compiled=meant,
        relation=f"type {kind}",
        fix=fix,
    )


_NAMES: dict[ValueType, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "object": "an object",
    "any": "anything",
}


def _is_right_json(value: JsonValue, kind: ValueType) -> bool:
    if kind in {"int", "float"}:
        allowed = (int,) if kind == "int" else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    return kind == "any" or isinstance(value, str | list | dict)


def _is_right_text(setting: Setting, kind: ValueType) -> bool:
    value = setting.value
    if kind == "bool":
        return isinstance(value, bool)
    if kind in {"int", "float"} and isinstance(value, str):
        return _is_number(value, kind) or (
            setting.name in _SCALABLE and as_int(setting) is not None and "." not in value
        )
    return kind not in {"int", "float", "str"} or not isinstance(value, bool | float if kind == "int" else bool)


def _is_number(text: str, kind: ValueType) -> bool:
    try:
        int(text) if kind == "int" else float(text)
    except ValueError:
        return text == "auto"
    return True


def _convert(setting: Setting, kind: ValueType) -> JsonValue:
    """The value in the right type, when only one can have been meant."""
    if kind == "int":
        return as_int(setting)
    if kind == "bool" and isinstance(setting.value, str):
        return as_bool(setting)
    if kind == "str" and isinstance(setting.value, int) and not isinstance(setting.value, bool):
        return str(setting.value)
    return None


def _describe(value: JsonValue) -> str:
    return f"the text {value!r}" if isinstance(value, str) else repr(value)


def check_contradictions(config: ServingConfig, _context: Context) -> Iterator[Outcome]:
    """LP111: no setting is given twice with different values, in the arguments or beside them."""
    given = {setting.name for setting in config.settings}
    variables = [(name, item) for item in config.environment if (name := _variable_name(item)) in _VARIABLES & given]
    first: dict[str, Setting] = {}
    for name, setting in (*variables, *((item.name, item) for item in config.settings)):
        earlier = first.setdefault(name, setting)
        if name in _REPEATABLE or earlier is setting or _same(earlier, setting):
            continue
        if not (earlier.is_known and setting.is_known):
            yield Unknown(setting.location, f"{setting.spelling} is given twice and depends on a variable")
            continue
        where = f" in line {earlier.location.line}" if earlier.location.line else ""
        is_secret = name in SECRET_NAMES
        yield Discrepancy(
            setting.location,
            f"{name} was already given as {HIDDEN if is_secret else repr(earlier.value)} ({earlier.spelling}{where})",
            given=HIDDEN if is_secret else setting.value,
            compiled=HIDDEN if is_secret else earlier.value,
        )


def _variable_name(variable: Setting) -> str:
    return variable.spelling.lower().removeprefix("llmpack_").removeprefix("vllm_")


def _same(a: Setting, b: Setting) -> bool:
    return a.value == b.value or (as_int(a) is not None and as_int(a) == as_int(b))


def check_features(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP112: nothing is switched on that the artifact was not compiled with."""
    for feature, names in _FEATURES.items():
        for setting in config.settings:
            if setting.name.partition(".")[0] in names and _is_on(setting):
                yield from _check_feature(context, setting, feature)


def _is_on(setting: Setting) -> bool:
    if setting.name == "pipeline_parallel_size":
        return as_int(setting) != 1
    return as_bool(setting) is not False and setting.value not in (None, "", 0)


def _check_feature(context: Context, setting: Setting, feature: str) -> Iterator[Outcome]:
    facts = context.facts
    if facts is None or facts.features is None:
        yield Unknown(setting.location, NO_ARTIFACT if facts is None else f"{facts.fact_file} does not tell features")
    elif feature not in facts.features:
        yield Discrepancy(
            setting.location,
            f"the artifact was compiled without {feature}",
            given=setting.value,
            compiled=False,
            fix=remove_entry(setting),
        )
