"""The text of a Dockerfile made plain: here-documents blanked, the escape character a backslash; all places stay.

Source: Dockerfile reference, "Parser directives" (`escape`) and "Here-Documents" (RUN, COPY and ADD).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(?P<name>\w+)[ \t]*=[ \t]*(?P<value>\S+)[ \t]*\r?\n?", re.ASCII)
_TAKES_DOCUMENT = re.compile(r"[ \t]*(?:ONBUILD[ \t]+)?(?:RUN|COPY|ADD)[ \t]", re.IGNORECASE)
_MARK = re.compile(r"(?<!<)<<(?P<tabs>-?)[ \t]*(?P<quote>[\"']?)(?P<mark>[A-Za-z_]\w*)(?P=quote)")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")


def plain_dockerfile(text: str) -> str:
    """Text of the same bytes per line in which every instruction is what it seems."""
    if _escape_character(text) == "`":
        text = re.sub(r"`(?=[ \t]*\r?\n)", r"\\", text)
    return "".join(_without_documents(text.splitlines(keepends=True)))


def _escape_character(text: str) -> str:
    """What the directives say, which stand before anything else."""
    at = 0
    while match := _DIRECTIVE.match(text, at):
        if match["name"].lower() == "escape":
            return match["value"]
        at = match.end()
    return "\\"


def _without_documents(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        instruction, length = _logical_line(lines, at)
        yield from lines[at : at + length]
        at += length
        marks = list(_MARK.finditer(instruction)) if _TAKES_DOCUMENT.match(instruction) else []
        for mark in marks:
            end = _document_end(lines, at, mark)
            yield from (_blank(line) for line in lines[at:end])
            at = end


def _logical_line(lines: list[str], at: int) -> tuple[str, int]:
    """The instruction that starts at line `at`, and how many lines it takes."""
    length = 1
    while at + length < len(lines) and _CONTINUED.search(lines[at + length - 1]):
        length += 1
    return "".join(lines[at : at + length]), length


def _document_end(lines: list[str], at: int, mark: re.Match[str]) -> int:
    """The index behind the line that ends the document; `at` when none does, so that nothing is lost."""
    for index in range(at, len(lines)):
        line = lines[index].rstrip("\r\n")
        if (line.lstrip("\t") if mark["tabs"] else line) == mark["mark"]:
            return index + 1
    return at


def _blank(line: str) -> str:
    """Blanks for the line's bytes, so that the places of all that follows stay."""
    content = line.rstrip("\r\n")
    return " " * len(content.encode()) + line[len(content) :]
