"""Finds stop strings in text that arrives in pieces, without letting any part of one out.

Only the longest suffix that is a proper prefix of some stop string is held back, so text flows without delay until a
stop string really begins.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Matches up to a few stop strings; O(1) amortised per character and string (Knuth-Morris-Pratt).

    The match that ends first wins; of those that end together, the longest.

    Args:
        stops: Non-empty strings; none means that all text passes at once.
        include: Whether the matched string stays in the text.
    """

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        # Longest first, so that the first complete pattern at a character is the longest.
        self._patterns = [_Pattern(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._include = include
        self._held = ""

    @property
    def num_held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that can be released now, and the stop string that matched.

        After a match feed nothing more; what followed the match is dropped.
        """
        buffer = self._held + text
        if not self._patterns:
            return buffer, None
        for end, character in enumerate(text, start=len(self._held) + 1):
            matched = [pattern.text for pattern in self._patterns if pattern.advance(character)]
            if matched:
                self._held = ""
                return buffer[: end if self._include else end - len(matched[0])], matched[0]
        cut = len(buffer) - max(pattern.progress for pattern in self._patterns)
        self._held = buffer[cut:]
        return buffer[:cut], None

    def flush(self) -> str:
        """The text still held back, when the output ended without a match."""
        held, self._held = self._held, ""
        return held


class _Pattern:
    """One stop string and how many of its characters the text so far ends with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.progress = 0
        self._borders = _borders(text)

    def advance(self, character: str) -> bool:
        """Whether the string is complete with this character."""
        self.progress = _extend(self.text, self._borders, self.progress, character)
        return self.progress == len(self.text)


def _borders(text: str) -> list[int]:
    """For each prefix length, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * (len(text) + 1)
    for length in range(1, len(text)):
        borders[length + 1] = _extend(text, borders, borders[length], text[length])
    return borders


def _extend(text: str, borders: list[int], progress: int, character: str) -> int:
    """Length of the longest prefix of `text` that `progress` matched characters and one more end with."""
    while progress and (progress == len(text) or text[progress] != character):
        progress = borders[progress]
    return progress + 1 if text[progress] == character else 0
