"""Which sequence runs what in the next step: policy alone, without arrays, clock, input or output, or chance.

Each step runs at most one decode batch, of all decoding sequences, and at most one prefill chunk, of one sequence. So
neither starves, and the time between two tokens of a sequence is bounded by one decode and one chunk, whatever the
length of the prompts that come in. Waiting sequences get free slots in order of arrival. Prompts are prefilled in order
of admission, each to its end before the next begins: a prompt is a finite number of chunks, so everyone's turn comes,
and finishing one early gives the better mean time to the first token than advancing all of them together.

A prompt whose beginning stands in a slot already, its own or another, begins with what follows it. That is looked up
when its prefill begins, not when it is admitted, so that of many equal prompts that come together all but the first
profit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmpack.runtime.prefix_cache import PrefixCache
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefixCopy, RunnerShape
from llmpack.runtime.sequence import SequenceState
from llmpack.runtime.slots import SlotPool


@dataclass(frozen=True, slots=True)
class ScheduledDecode:
    """A decode and the sequences that take part, in ascending order of slot; each has its row in the batch."""

    sequences: tuple[SequenceState, ...]
    batch: DecodeBatch


@dataclass(frozen=True, slots=True)
class ScheduledPrefill:
    """A chunk of a sequence's prompt.

    Attributes:
        sequence: Whose prompt.
        chunk: What to run.
        is_last: The prompt is complete after it.
        is_first: The sequence begins with it; `sequence.num_cached` tokens are reused.
        copy: To be made before the chunk; None when the reused tokens stand in the sequence's own slot.
    """

    sequence: SequenceState
    chunk: PrefillChunk
    is_last: bool
    is_first: bool = False
    copy: PrefixCopy | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. The decode must run before the prefill.

    The decode writes a token that nobody reads behind each slot in mid-prefill; the chunk that follows overwrites it.

    Attributes:
        admitted: Sequences that got their slot with this plan.
        decode: Or None when nothing decodes.
        prefill: Or None when no prompt is left.
    """

    admitted: tuple[SequenceState, ...]
    decode: ScheduledDecode | None
    prefill: ScheduledPrefill | None

    @property
    def num_tokens(self) -> int:
        """Tokens that the step adds to slots; a position written a second time does not count."""
        decoded = 0 if self.decode is None else len(self.decode.sequences)
        if self.prefill is None:
            return decoded
        chunk = self.prefill.chunk
        return decoded + chunk.start + len(chunk.token_ids) - self.prefill.sequence.num_cached


class Scheduler:
    """Owns the waiting queue, the slots and the running sequences.

    Args:
        shape: The compiled shapes.
        max_running: Slots in use at most, in [1, batch_size].
        reuses_prefixes: Prompts begin with what a slot already holds of them.
    """

    def __init__(self, shape: RunnerShape, max_running: int, *, reuses_prefixes: bool = True) -> None:
        self._shape = shape
        self._reuses_prefixes = reuses_prefixes
        self._slots = SlotPool(max_running)
        self._prefixes = PrefixCache(max_running, shape.prefill_buckets[-1], shape.max_seq_len)
        self._waiting: dict[str, SequenceState] = {}
        self._running: dict[str, SequenceState] = {}

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences with a slot."""
        return len(self._running)

    @property
    def num_cached_tokens(self) -> int:
        """Tokens in all slots together."""
        return sum(sequence.num_cached for sequence in self._running.values())

    def add(self, sequence: SequenceState) -> None:
        """Puts a sequence at the end of the queue; its id must be unique among the live ones."""
        self._waiting[sequence.request_id] = sequence

    def remove(self, sequence: SequenceState) -> None:
        """Drops a finished or aborted sequence, waiting or running; its slot is free at once."""
        if self._waiting.pop(sequence.request_id, None) is not None:
            return
        del self._running[sequence.request_id]
        assert sequence.slot is not None
        self._slots.release(sequence.slot)
        sequence.slot = None

    def finish_chunk(self, sequence: SequenceState) -> None:
        """Notes that the sequence's next chunk is in its slot, where other prompts may find it."""
        sequence.finish_chunk()
        self._hold(sequence)

    def schedule(self) -> StepPlan:
        """Admits what fits and decides what runs next. Changes nothing but which sequences have a slot and begin."""
        admitted = self._admit()
        return StepPlan(admitted, self._schedule_decode(), self._schedule_prefill())

    def _hold(self, sequence: SequenceState) -> None:
        assert sequence.slot is not None
        length = sequence.num_reusable if self._reuses_prefixes else 0
        self._prefixes.hold(sequence.slot, sequence.request.prompt_ids, length)

    def _admit(self) -> tuple[SequenceState, ...]:
        num_admitted = min(self._slots.num_free, len(self._waiting))
        admitted = tuple(self._waiting.values())[:num_admitted]
        for sequence in admitted:
            sequence.slot = self._choose_slot(sequence)
            self._slots.acquire(sequence.slot)
            self._running[sequence.request_id] = self._waiting.pop(sequence.request_id)
        return admitted

    def _choose_slot(self, sequence: SequenceState) -> int:
        """A free slot: one that keeps the decode window small; then one that holds the prompt's beginning, or nothing.

        What must be overwritten is what was used longest ago.
        """
        prompt_ids, limit = sequence.request.prompt_ids, sequence.max_reused

        def cost(slot: int) -> tuple[int, int, int, int]:
            _, bucket = choose_window(sorted([*self._slots.taken, slot]), self._shape)
            match = self._prefixes.match(slot, prompt_ids, limit)
            return bucket, -match, self._prefixes.staleness(slot), slot

        return min(self._slots.free, key=cost)

    def _schedule_prefill(self) -> ScheduledPrefill | None:
        sequence = next((s for s in self._running.values() if s.next_chunk is not None), None)
        if sequence is None:
            return None
        is_first = not sequence.has_begun
        copy = self._begin(sequence) if is_first else None
        return _next_prefill(sequence, is_first=is_first, copy=copy)

    def _begin(self, sequence: SequenceState) -> PrefixCopy | None:
        """Skips the chunks that a slot holds; returns what must be copied for it."""
        assert sequence.slot is not None
        source, length = self._prefixes.find(sequence.request.prompt_ids, sequence.max_reused, sequence.slot)
        sequence.begin(length)
        self._hold(sequence)
        return PrefixCopy(source, sequence.slot, length) if length and source != sequence.slot else None

    def _schedule_decode(self) -> ScheduledDecode | None:
        by_slot = {sequence.slot: sequence for sequence in self._running.values() if sequence.slot is not None}
        decoding = sorted(slot for slot, sequence in by_slot.items() if sequence.is_decoding)
        if not decoding:
            return None
        first_slot, bucket = choose_window(decoding, self._shape)
        rows = [by_slot.get(slot) for slot in range(first_slot, first_slot + bucket)]
        batch = DecodeBatch(
            first_slot=first_slot,
            bucket=bucket,
            token_ids=[0 if row is None else row.last_token_id or 0 for row in rows],
            lengths=[self._num_cached(slot, row) for slot, row in enumerate(rows, first_slot)],
        )
        return ScheduledDecode(tuple(by_slot[slot] for slot in decoding), batch)

    def _num_cached(self, slot: int, sequence: SequenceState | None) -> int:
        """Tokens in a slot that a decode must not write over."""
        if sequence is not None and sequence.has_begun:
            return sequence.num_cached
        return self._prefixes.held_len(slot) if slot < self._slots.num_slots else 0


def _next_prefill(sequence: SequenceState, *, is_first: bool, copy: PrefixCopy | None) -> ScheduledPrefill:
    span, request = sequence.next_chunk, sequence.request
    assert span is not None
    assert sequence.slot is not None
    chunk = PrefillChunk(
        slot=sequence.slot,
        start=span.start,
        token_ids=request.prompt_ids[span.start : span.end],
        bucket=span.bucket,
        all_logits=request.num_prompt_logprobs is not None,
    )
    is_last = span.end == len(request.prompt_ids)
    return ScheduledPrefill(sequence, chunk, is_last=is_last, is_first=is_first, copy=copy)


def choose_window(slots: Sequence[int], shape: RunnerShape) -> tuple[int, int]:
    """First slot and bucket of the smallest compiled window that covers `slots`, which ascend and are not empty.

    The window starts at the first of them, or earlier where it would reach past the last slot of the cache.
    """
    span = slots[-1] - slots[0] + 1
    bucket = next(size for size in shape.decode_buckets if size >= span)
    return min(slots[0], shape.batch_size - bucket), bucket
