"""Files of a bundle from templates. `@NAME@` in a template stands for a value; nothing else is special."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

_PLACE = re.compile(r"@([A-Z][A-Z0-9_]*)@")


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One text file of a bundle.

    Attributes:
        path: Relative to the bundle, with forward slashes.
        text: Its content, written as UTF-8.
        is_executable: Whether it is a command.
    """

    path: str
    text: str
    is_executable: bool = False


def render_template(name: str, values: Mapping[str, str]) -> str:
    """The template `templates/<name>.in` with every `@NAME@` replaced.

    Raises:
        KeyError: The template has a place without a value.
    """
    template = files("llmpack.bundle").joinpath("templates", f"{name}.in").read_text(encoding="utf-8")
    return _PLACE.sub(lambda match: values[match[1]], template)
