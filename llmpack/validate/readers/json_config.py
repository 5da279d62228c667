"""Engine arguments in a JSON file: Triton's `model.json`."""

from __future__ import annotations

from llmpack.validate.model import Location, ServingConfig, Setting
from llmpack.validate.readers.engine_targets import resolve_engine_target
from llmpack.validate.readers.json_text import JsonMember, parse_json
from llmpack.validate.readers.source_text import SourceText


def read_model_json(source: SourceText) -> ServingConfig:
    """The members of the file's object as settings, duplicate keys included.

    Raises:
        UnreadableConfig: Not JSON, or not an object.
    """
    node = parse_json(source)
    if node.members is None:
        raise source.failure("engine arguments are a JSON object, not a list or a single value", node.start)
    settings = tuple(_setting(source, member) for member in node.members)
    target = resolve_engine_target(settings, "vllm")
    return ServingConfig("model.json", "file", source.path, target, Location(source.path, 1, 1), settings)


def json_pointer(key: str) -> str:
    """The pointer to the root's member `key` (RFC 6901)."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _setting(source: SourceText, member: JsonMember) -> Setting:
    return Setting(
        name=member.key,
        value=member.value.plain(),
        spelling=member.key,
        location=source.location(member.value.start, json_pointer(member.key)),
        span=source.span(member.value.start, member.value.end),
        key_span=source.span(member.key_start + 1, member.key_end - 1),
        entry_span=source.span(member.cut_start, member.cut_end),
    )
