"""Variables in words: `$X`, `${X}`, `${X:-default}` and Kubernetes' `$(X)`.

A variable that the file does not set is unknown, never guessed; its default, if it has one, is what the file says.
Source: POSIX.1-2024 Shell Command Language 2.6.2; Compose "Interpolation"; Kubernetes "Define dependent variables".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmpack.validate.readers.words import FROM_VARIABLE, UNKNOWN, MappedText

# A few lines can make a variable double itself until memory is full; what is longer than this is unknown.
MAX_VALUE_CHARACTERS = 1 << 13
MAX_EXPANDED_CHARACTERS = 1 << 18
_BARE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-])")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|[0-9@*#]+)(:?[-=])?")
_KUBERNETES = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_PLAIN_DEFAULT = re.compile(r"[^$`\"'\\]*")


@dataclass(frozen=True, slots=True)
class Expansion:
    """What stands for a variable.

    Attributes:
        text: Its value, or the variable as written.
        offsets: As in `Word.offsets`.
        end: Offset in the mapped text behind the variable.
    """

    text: str
    offsets: tuple[int, ...]
    end: int


def expand(mapped: MappedText, at: int, variables: Mapping[str, str], *, is_kubernetes: bool = False) -> Expansion:
    """The value of the variable that starts with the `$` at `at`; a lone `$` stands for itself."""
    text = mapped.text
    if is_kubernetes and (match := _KUBERNETES.match(text, at)):
        return _from_variable(text, match, variables)
    if text.startswith("$(", at):
        return _unknown(text, at, closing_index(text, at + 1, "(", ")"))
    if match := _BRACED.match(text, at):
        return _expand_braced(mapped, match, variables)
    if match := _BARE.match(text, at):
        return _from_variable(text, match, variables)
    if text.startswith("${", at):
        return _unknown(text, at, closing_index(text, at + 1, "{", "}"))
    return Expansion("$", mapped.offsets(at, at + 1), at + 1)


def closing_index(text: str, at: int, opening: str, closing: str) -> int:
    """The offset behind the bracket that closes the one at `at`; the text's length when none does."""
    depth = 0
    for match in re.compile(f"[{re.escape(opening + closing)}]").finditer(text, at):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.end()
    return len(text)


def _from_variable(text: str, match: re.Match[str], variables: Mapping[str, str]) -> Expansion:
    value = variables.get(match[1])
    if value is None or len(value) > MAX_VALUE_CHARACTERS:
        return _unknown(text, match.start(), match.end())
    return Expansion(value, (FROM_VARIABLE,) * len(value), match.end())


def _unknown(text: str, start: int, end: int) -> Expansion:
    return Expansion(text[start:end], (UNKNOWN,) * (end - start), end)


def _expand_braced(mapped: MappedText, match: re.Match[str], variables: Mapping[str, str]) -> Expansion:
    end = closing_index(mapped.text, match.start() + 1, "{", "}")
    value = variables.get(match[1])
    if value is not None and len(value) > MAX_VALUE_CHARACTERS:
        return _unknown(mapped.text, match.start(), end)
    default = mapped.text[match.end() : end - 1]
    is_plain = match[2] is not None or not default
    if value is not None and is_plain and not (value == "" and (match[2] or "").startswith(":")):
        return Expansion(value, (FROM_VARIABLE,) * len(value), end)
    if match[2] is None:
        return _unknown(mapped.text, match.start(), end)
    quotes = 1 if len(default) > 1 and default[0] == default[-1] and default[0] in "\"'" else 0
    start, stop = match.end() + quotes, end - 1 - quotes
    if not _PLAIN_DEFAULT.fullmatch(mapped.text, start, stop):
        return _unknown(mapped.text, match.start(), end)
    return Expansion(mapped.text[start:stop], mapped.offsets(start, stop), end)
