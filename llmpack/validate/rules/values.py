"""Values of settings as rules compare them, whatever format they were written in."""

from __future__ import annotations

import re

from llmpack.validate.model import ServingConfig, Setting

# Source: vLLM, argument parser of the engine's token counts: 4k is 4000, 4K is 4096.
_SCALES = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}
TEXT_KINDS = frozenset({"command-line", "env-file"})


def find_setting(config: ServingConfig, *names: str) -> Setting | None:
    """The occurrence that counts, the last one, of any of `names`; None when there is none."""
    found = [setting for setting in config.settings if setting.name in names]
    return found[-1] if found else None


def is_text(config: ServingConfig) -> bool:
    """Whether the engine takes all values of the config for text, so that "4" is a number.

    That includes the YAML of `vllm serve --config`, which the engine turns into flags.
    """
    return config.kind in TEXT_KINDS or (config.kind == "kwargs" and config.origin == "file")


def as_int(setting: Setting) -> int | None:
    """The whole number that was meant, also where its type is wrong; None when there is none."""
    value = setting.value
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return _parse_int(value) if isinstance(value, str) else value if isinstance(value, int) else None


def _parse_int(text: str) -> int | None:
    text = text.strip()
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.0+", text):
        return int(text.partition(".")[0])
    match = _SCALED.fullmatch(text)
    scaled = float(match[1]) * _SCALES[match[2]] if match else None
    return int(scaled) if scaled is not None and scaled.is_integer() else None


def as_bool(setting: Setting) -> bool | None:
    """The truth value that was meant, also where it is text; None when there is none."""
    if isinstance(setting.value, bool):
        return setting.value
    word = str(setting.value).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def as_text(setting: Setting) -> str | None:
    """The value when it is text that is not empty, else None."""
    return setting.value if isinstance(setting.value, str) and setting.value else None


def is_path(text: str) -> bool:
    """Whether `text` can only be a path of the file system, never a hub id."""
    return text.startswith(("/", "./", "../", "~")) or text in {".", ".."}


def is_placeholder(text: str) -> bool:
    """Whether `text` stands for something that the reader was to fill in."""
    return text.startswith("<") or "/PATH/TO/" in text.upper()
