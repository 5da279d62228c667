"""The token counts of a stream, as far as the request wants to see them."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from llmpack.runtime.request import SequenceOutput
from llmpack.server.bodies import StreamOptions
from llmpack.server.generation import ChoiceResult, Generation
from llmpack.server.responses import Usage


class StreamUsage:
    """Counts while a stream runs.

    Args:
        options: The request's stream_options.
        generation: Whose prompts and choices are counted.
    """

    def __init__(self, options: StreamOptions | None, generation: Generation) -> None:
        self._generation = generation
        self._results = [ChoiceResult() for _ in generation.requests]
        self._is_continuous = options is not None and options.continuous_usage_stats is True
        self._is_wanted = options is not None and options.include_usage is True

    def note(self, index: int, output: SequenceOutput) -> None:
        """Takes over the counts of choice `index`."""
        self._results[index].count(output)

    def in_chunk(self) -> Usage | UnsetType | None:
        """What ordinary chunks carry: nothing; null when the usage follows at the end; or the usage so far."""
        if self._is_continuous:
            return self._generation.usage(self._results)
        return None if self._is_wanted else UNSET

    def final(self) -> Usage | None:
        """What the last chunk carries; None for no such chunk."""
        return self._generation.usage(self._results) if self._is_wanted else None
