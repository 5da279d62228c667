"""The text of one file, with the way from characters to lines and bytes."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import Location, Span

MAX_FILE_BYTES = 1 << 18
_UTF8_BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class SourceText:
    """Text with positions.

    Attributes:
        path: As shown in locations; None for text that did not come from a file.
        text: Decoded, without a byte order mark; line ends as in the file.
    """

    def __init__(self, text: str, path: str | None = None, *, num_bom_bytes: int = 0) -> None:
        self.text = text
        self.path = path
        self._num_bom_bytes = num_bom_bytes

    def with_text(self, text: str) -> SourceText:
        """The same file with other characters in the same places: `text` takes as many bytes, line by line."""
        return SourceText(text, self.path, num_bom_bytes=self._num_bom_bytes)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    @cached_property
    def _line_bytes(self) -> list[int]:
        """Byte offset of each line's start."""
        offsets = [self._num_bom_bytes]
        bounds = [*self._line_starts, len(self.text)]
        for start, end in pairwise(bounds[:-1]):
            offsets.append(offsets[-1] + len(self.text[start:end].encode()))
        return offsets

    def location(self, at: int, pointer: str = "") -> Location:
        """The place of the character at `at`."""
        line = bisect_right(self._line_starts, at)
        return Location(self.path, line, at - self._line_starts[line - 1] + 1, pointer)

    def line_start(self, line: int) -> int:
        """The offset of the first character of `line`, which counts from 0; the text's length past the end."""
        return self._line_starts[line] if line < len(self._line_starts) else len(self.text)

    def span(self, start: int, end: int) -> Span | None:
        """The bytes of the characters from `start` to before `end`; None when there is no file to edit."""
        if self.path is None:
            return None
        return Span(self._byte_offset(start), self._byte_offset(end))

    def _byte_offset(self, at: int) -> int:
        if self.text.isascii():
            return at + self._num_bom_bytes
        line = bisect_right(self._line_starts, at) - 1
        start = self._line_starts[line]
        return self._line_bytes[line] + len(self.text[start:at].encode())

    def character(self, line: int, column_bytes: int) -> int:
        """The offset of the character `column_bytes` bytes into `line`, which counts from 1, as `ast` counts."""
        start, end = self.line_start(line - 1), self.line_start(line)
        if self.text.isascii():
            return start + column_bytes
        return start + len(self.text[start:end].encode()[:column_bytes].decode(errors="ignore"))

    def failure(self, what: str, at: int) -> UnreadableConfig:
        """An error that names the line and column of `at`."""
        place = self.location(at)
        return UnreadableConfig(f"line {place.line}, column {place.column}: {what}")


def read_source(path: Path, drafts: Mapping[Path, bytes] | None = None) -> SourceText:
    """The text of `path`. Never blocks on a pipe or device, never reads more than `MAX_FILE_BYTES`.

    Args:
        path: The file.
        drafts: What files would hold after a fix, by real path; taken in the place of what they hold.

    Raises:
        UnreadableConfig: Not a regular file, too large, binary, not UTF-8, or refused by the system.
    """
    draft = drafts.get(Path(os.path.realpath(path))) if drafts else None
    content = _read_bytes(path) if draft is None else draft
    num_bom_bytes = len(_UTF8_BOM) if content.startswith(_UTF8_BOM) else 0
    encoding = _OTHER_ENCODINGS.get(content[:2])
    if encoding:
        raise UnreadableConfig(f"the text is {encoding}", allowed="UTF-8", next_step="Save the file as UTF-8.")
    if b"\0" in content:
        raise UnreadableConfig("the file is binary: it holds NUL bytes", allowed="UTF-8 text")
    try:
        text = content[num_bom_bytes:].decode()
    except UnicodeDecodeError as error:
        raise UnreadableConfig(
            f"byte {error.start + num_bom_bytes} is not UTF-8", allowed="UTF-8", next_step="Save the file as UTF-8."
        ) from None
    return SourceText(text, str(path), num_bom_bytes=num_bom_bytes)


def _read_bytes(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableConfig("not a regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableConfig(f"the file cannot be opened: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableConfig(
            f"the file is too large for a serving config: {status.st_size} bytes",
            allowed=f"at most {MAX_FILE_BYTES} bytes",
        )
    return content
