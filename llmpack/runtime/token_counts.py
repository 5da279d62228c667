"""How often which tokens occurred, for penalties."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from llmpack.runtime.ranking import Indices

_FIRST_CAPACITY = 64


class TokenCounts:
    """Counts tokens; listing those that occurred costs nothing, whatever the vocabulary.

    Args:
        vocab_size: Ids are in [0, vocab_size).
        token_ids: What occurred already.
    """

    def __init__(self, vocab_size: int, token_ids: Iterable[int] = ()) -> None:
        self._counts = np.zeros(vocab_size, dtype=np.int32)
        self._ids: Indices = np.empty(_FIRST_CAPACITY, dtype=np.intp)
        self._num_ids = 0
        for token_id in token_ids:
            self.add(token_id)

    @property
    def ids(self) -> Indices:
        """The ids that occurred, each once, in order of their first time."""
        return self._ids[: self._num_ids]

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """How often each of `ids` occurred."""
        return self._counts[self.ids]

    def add(self, token_id: int) -> None:
        """Counts one occurrence."""
        if not self._counts[token_id]:
            if self._num_ids == self._ids.size:
                self._ids = np.resize(self._ids, 2 * self._ids.size)
            self._ids[self._num_ids] = token_id
            self._num_ids += 1
        self._counts[token_id] += 1
