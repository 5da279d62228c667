"""What an engine must be able to do with compiled programs, whichever library executes them.

Runners: `runtime/onnx_runner.py` (ONNX Runtime), `runtime/inductor_runner.py` (native libraries over torch) and
`runtime/paper_runner.py` (arithmetic on paper, for tests of everything above the runner). The letters are B slots, T
tokens of a call, S cache length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from llmpack.runtime.request import Logits


@dataclass(frozen=True, slots=True)
class RunnerShape:
    """The compiled shapes, all in tokens, slots or ids.

    Attributes:
        batch_size: Number of slots, B.
        max_seq_len: Cache length of a slot, S: prompt and output tokens together.
        vocab_size: Width of a row of logits, V.
        prefill_buckets: Compiled prefill lengths, ascending.
        decode_buckets: Compiled decode widths, ascending; the last is batch_size.
    """

    batch_size: int
    max_seq_len: int
    vocab_size: int
    prefill_buckets: tuple[int, ...]
    decode_buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Tokens of one prompt to be written to one slot.

    Invariants: 1 <= len(token_ids) <= bucket; start + bucket <= max_seq_len; positions below `start` are already
    in the slot. A chunk may rewrite positions that an earlier one wrote (with the same tokens).

    Attributes:
        slot: The row of the cache.
        start: Position of the first token.
        token_ids: The tokens, unpadded.
        bucket: The compiled length that runs them.
        all_logits: Also return the logits of every position (prompt logprobs).
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    bucket: int
    all_logits: bool = False


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """Logits of a chunk.

    Attributes:
        last: [V] logits after the last token.
        all: [len(token_ids), V] logits after each token, or None when not asked for.
    """

    last: Logits
    all: Logits | None


@dataclass(frozen=True, slots=True)
class PrefixCopy:
    """Keys and values of one slot's first positions to be copied to another's.

    Attributes:
        source: The slot that holds them.
        target: The slot that gets them.
        length: Positions, from 0 on.
    """

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """One token for each of `bucket` neighbouring slots, first_slot .. first_slot + bucket - 1.

    Rows that are not running (free slots, or slots in the middle of their prefill) are given too: token 0 behind what
    they hold. What is written there is overwritten by the slot's next real token, so nothing leaks.

    Attributes:
        first_slot: First row of the cache.
        bucket: The compiled width.
        token_ids: `bucket` ids.
        lengths: `bucket` numbers of tokens already in each slot; the row's token is written at that position. Each is
            in [0, max_seq_len).
    """

    first_slot: int
    bucket: int
    token_ids: Sequence[int]
    lengths: Sequence[int]


class Runner(Protocol):
    """Executes compiled programs over a slot cache that it owns. Not thread-safe: one engine thread calls it."""

    @property
    def shape(self) -> RunnerShape:
        """The compiled shapes."""
        ...

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot to another, bit for bit."""
        ...

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        """Writes the chunk's keys and values into its slot and returns the logits."""
        ...

    def decode(self, batch: DecodeBatch) -> Logits:
        """Writes one token per row and returns [bucket, V] logits, valid until the next call."""
        ...
