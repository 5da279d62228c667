"""Building fixes: edits of the bytes that a setting was read from."""

from __future__ import annotations

import json
import re

from llmpack.validate.model import Edit, Fix, JsonValue, Location, ServingConfig, Setting, Span

# In a command line or environment only words that need no quoting in any shell or YAML are written.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:+-]+")


def replace_value(config: ServingConfig, setting: Setting, value: JsonValue) -> Fix | None:
    """Writes `value` in the place of the setting's; None when that cannot be done safely."""
    if setting.span is None or not setting.is_known:
        return None
    text = _spell(config, value)
    if text is None:
        return None
    return edit_span(setting.location, setting.span, text, f"set {setting.spelling} to {text}")


def rename_key(setting: Setting, name: str) -> Fix | None:
    """Writes `name` in the place of the setting's key, in the spelling style that it had."""
    if setting.key_span is None:
        return None
    spelled = "--" + name.replace("_", "-") if setting.spelling.startswith("--") else name
    return edit_span(setting.location, setting.key_span, spelled, f"rename {setting.spelling} to {spelled}")


def remove_entry(setting: Setting) -> Fix | None:
    """Cuts the whole entry out."""
    if setting.entry_span is None:
        return None
    return edit_span(setting.location, setting.entry_span, "", f"remove {setting.spelling}")


def edit_span(location: Location, span: Span | None, replacement: str, description: str) -> Fix | None:
    """A fix of one edit; None when there are no bytes to edit."""
    if span is None or location.path is None:
        return None
    return Fix(description, (Edit(location.path, span.start, span.end, replacement),))


def _spell(config: ServingConfig, value: JsonValue) -> str | None:
    if config.kind == "model.json":
        return json.dumps(value)
    if config.kind == "kwargs":
        return repr(value)
    text = str(value)
    return text if _PLAIN_WORD.fullmatch(text) and not isinstance(value, bool) else None
