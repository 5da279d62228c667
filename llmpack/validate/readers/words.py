"""Words of a command line that remember where each of their characters stands in a file."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from llmpack.validate.model import Span
from llmpack.validate.readers.source_text import SourceText

FROM_VARIABLE = -1
UNKNOWN = -2


@dataclass(frozen=True, slots=True)
class MappedText:
    """Text taken out of a file: a decoded YAML string, or a Dockerfile instruction without its comments.

    Attributes:
        segments: Pairs of an offset in `text` and the file's offset of the same character, both rising; from each
            pair on, text and file run in step. Empty when the text has no such places.
        anchor: The file's offset that stands for the whole text.
    """

    text: str
    segments: tuple[tuple[int, int], ...]
    anchor: int = 0

    def offset(self, at: int) -> int:
        """The file's offset of the character at `at`, or `FROM_VARIABLE` when it has none."""
        if not self.segments:
            return FROM_VARIABLE
        start, origin = self.segments[bisect_right(self.segments, at, key=lambda pair: pair[0]) - 1]
        return origin + at - start

    def offsets(self, start: int, end: int) -> tuple[int, ...]:
        """The file's offsets of the characters from `start` to before `end`."""
        if len(self.segments) == 1:
            shift = self.segments[0][1] - self.segments[0][0]
            return tuple(range(start + shift, end + shift))
        return tuple(self.offset(at) for at in range(start, end))


def map_whole(source: SourceText) -> MappedText:
    """The whole file."""
    return MappedText(source.text, ((0, 0),))


@dataclass(frozen=True, slots=True)
class Word:
    """One argument.

    Attributes:
        text: After quotes, escapes and variables; an unknown variable stands as written.
        offsets: For each character its offset in the file, `FROM_VARIABLE`, or `UNKNOWN` for a variable without a
            value.
        start: The file's offset of the first character as written, quotes included.
        end: The file's offset behind the last one.
    """

    text: str
    offsets: tuple[int, ...]
    start: int
    end: int

    @property
    def is_known(self) -> bool:
        """Whether every variable in it has a value."""
        return UNKNOWN not in self.offsets

    def cut(self, begin: int) -> Word:
        """The word from its character `begin` on."""
        start = next((offset for offset in self.offsets[begin:] if offset >= 0), self.start)
        return Word(self.text[begin:], self.offsets[begin:], start, self.end)

    def head(self, end: int) -> Word:
        """The word up to before its character `end`."""
        return Word(self.text[:end], self.offsets[:end], self.start, self.end)

    def span(self, source: SourceText) -> Span | None:
        """The bytes that the text is written as, without quotes; None when it is put together from pieces."""
        if not self.offsets or self.offsets[0] < 0:
            return None
        first = self.offsets[0]
        if self.offsets != tuple(range(first, first + len(self.offsets))):
            return None
        return source.span(first, first + len(self.offsets))


def as_mapped(word: Word) -> MappedText:
    """The word's own text with its places, to be read as a script of its own."""
    segments: list[tuple[int, int]] = []
    for at, offset in enumerate(word.offsets):
        if offset < 0:
            return MappedText(word.text, (), word.start)
        if not segments or offset != segments[-1][1] + at - segments[-1][0]:
            segments.append((at, offset))
    return MappedText(word.text, tuple(segments), word.start)
