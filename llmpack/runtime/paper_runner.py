"""A runner with arithmetic on paper: a model whose next token anyone can work out from the prefix.

It keeps the same slots as a real runner and writes them the same way, rows that nobody reads included, but stores token
ids instead of keys and values. The logits after a prefix are a fixed function of the prefix (`paper_logits`), so a test
knows the right answer for every sequence without a model. Breaking an invariant of `PrefillChunk` or `DecodeBatch`, or
reading a position that no chunk of the present sequence wrote, is an AssertionError.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, PrefixCopy, RunnerShape

_UNWRITTEN = -1
_SCRIPTED_LOGIT = 30.0


def paper_logits(prefix: Sequence[int], vocab_size: int, script: Mapping[int, int] | None = None) -> Logits:
    """[V] logits after `prefix`: spread over [0, 8) by a hash of the prefix, all of it.

    With a script, the token that follows the prefix's last token in it gets a logit of 30, so that it is the greedy
    choice and all but certain when sampled at temperature 1.
    """
    digest = blake2b(np.asarray(prefix, dtype=np.int64).tobytes(), digest_size=8).digest()
    logits = _spread(int.from_bytes(digest, "little"), vocab_size)
    if script is not None and prefix[-1] in script:
        logits[script[prefix[-1]]] = _SCRIPTED_LOGIT
    return logits


def _spread(seed: int, size: int) -> Logits:
    """`size` numbers in [0, 8) from one 64-bit seed (Source: splitmix64, Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed: npt.NDArray[np.uint64] = np.uint64(seed) + np.arange(1, size + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**21)).astype(np.float32)


class PaperRunner:
    """Runs chunks and batches on token ids.

    Args:
        shape: The shapes to pretend to be compiled for.
        script: Token id -> the token id that follows it; tokens without an entry are followed as the hash says.
        step_time_s: How long each call takes, in seconds, for tests that need a slow model.

    Attributes:
        chunks: Every chunk that was run, in order.
        batches: Every decode that was run, in order.
        copies: Every copy that was made, in order.
    """

    def __init__(
        self, shape: RunnerShape, script: Mapping[int, int] | None = None, *, step_time_s: float = 0.0
    ) -> None:
        self._shape = shape
        self._script = script
        self._step_time_s = step_time_s
        self._cache = np.full((shape.batch_size, shape.max_seq_len), _UNWRITTEN, dtype=np.int64)
        self._last_logits: Logits | None = None
        self.chunks: list[PrefillChunk] = []
        self.batches: list[DecodeBatch] = []
        self.copies: list[PrefixCopy] = []

    @property
    def shape(self) -> RunnerShape:
        """The pretended shapes."""
        return self._shape

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot; see `Runner.copy_prefix`."""
        source, target = self._cache[copy.source], self._cache[copy.target]
        assert copy.source != copy.target, copy
        assert 0 < copy.length < self._shape.max_seq_len, copy
        assert (source[: copy.length] != _UNWRITTEN).all(), copy
        self.copies.append(copy)
        target[: copy.length] = source[: copy.length]
        target[copy.length :] = _UNWRITTEN

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        """Writes the chunk and its padding; see `Runner.prefill`."""
        self._begin_call()
        self._check_chunk(chunk)
        self.chunks.append(chunk)
        row = self._cache[chunk.slot]
        end = chunk.start + len(chunk.token_ids)
        row[chunk.start : end] = chunk.token_ids
        row[end:] = _UNWRITTEN  # padding, and what the last sequence left: reading it would be a leak
        first = chunk.start if chunk.all_logits else end - 1
        logits = np.stack([self._logits_at(chunk.slot, position) for position in range(first, end)])
        return PrefillResult(last=logits[-1], all=logits if chunk.all_logits else None)

    def decode(self, batch: DecodeBatch) -> Logits:
        """Writes one token per row; see `Runner.decode`. The next call spoils the returned array."""
        self._begin_call()
        self._check_batch(batch)
        self.batches.append(batch)
        slots = range(batch.first_slot, batch.first_slot + batch.bucket)
        for slot, token_id, length in zip(slots, batch.token_ids, batch.lengths, strict=True):
            self._cache[slot, length] = token_id
        logits = np.stack([self._logits_at(slot, length) for slot, length in zip(slots, batch.lengths, strict=True)])
        self._last_logits = logits
        return logits

    def _begin_call(self) -> None:
        if self._last_logits is not None:
            self._last_logits.fill(np.nan)
            self._last_logits = None
        if self._step_time_s > 0:
            time.sleep(self._step_time_s)

    def _logits_at(self, slot: int, position: int) -> Logits:
        prefix = self._cache[slot, : position + 1]
        assert (prefix != _UNWRITTEN).all(), f"slot {slot} reads an unwritten position at or below {position}"
        return paper_logits(prefix.tolist(), self._shape.vocab_size, self._script)

    def _check_chunk(self, chunk: PrefillChunk) -> None:
        shape, num_tokens = self._shape, len(chunk.token_ids)
        assert 0 <= chunk.slot < shape.batch_size, chunk
        assert chunk.bucket in shape.prefill_buckets, chunk
        assert 1 <= num_tokens <= chunk.bucket, chunk
        assert 0 <= chunk.start <= shape.max_seq_len - chunk.bucket, chunk
        assert all(0 <= token_id < shape.vocab_size for token_id in chunk.token_ids), chunk
        assert (self._cache[chunk.slot, : chunk.start] != _UNWRITTEN).all(), chunk

    def _check_batch(self, batch: DecodeBatch) -> None:
        shape = self._shape
        assert batch.bucket in shape.decode_buckets, batch
        assert 0 <= batch.first_slot <= shape.batch_size - batch.bucket, batch
        assert len(batch.token_ids) == len(batch.lengths) == batch.bucket, batch
        assert all(0 <= token_id < shape.vocab_size for token_id in batch.token_ids), batch
        assert all(0 <= length < shape.max_seq_len for length in batch.lengths), batch
