"""What the slots still hold of prompts that were prefilled in them, so that an equal beginning is not computed again.

The unit is a whole chunk of the largest prefill bucket, at its usual start. Such a chunk went through the same program
with the same tokens as it would for the new prompt, so its keys and values are the same bits, and so is every logit
after it. What decode wrote, or a shorter chunk, is never reused: another program rounds differently.

    buckets 32 and 128

    slot 0 held   |0 --- system prompt --- 128|128 --------- 256|256 .. 300| output ...
    new prompt    |0 --- system prompt --- 128|128 --- other ...
                   `------- reused ---------'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmpack.runtime.chunk_plan import ChunkSpan

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeldPrefix:
    """Tokens whose keys and values stand in a slot from position 0 on, each chunk of them reusable.

    Attributes:
        token_ids: At least `length` ids.
        length: A multiple of the largest prefill bucket; 0 for nothing.
    """

    token_ids: Tokens = ()
    length: int = 0

    def match(self, prompt_ids: Tokens, limit: int, chunk_len: int) -> int:
        """Tokens of `prompt_ids` that are here, in whole chunks and at most `limit`."""
        end = min(self.length, limit) // chunk_len * chunk_len
        for start in range(0, end, chunk_len):
            if self.token_ids[start : start + chunk_len] != prompt_ids[start : start + chunk_len]:
                return start
        return end


class PrefixCache:
    """Remembers what each slot held last, and how long ago.

    Args:
        num_slots: Slots in use.
        chunk_len: The largest prefill bucket.
        max_seq_len: Length of a slot.
    """

    def __init__(self, num_slots: int, chunk_len: int, max_seq_len: int) -> None:
        self._chunk_len = chunk_len
        # A decode batch writes a token nobody reads behind what a free slot holds, so one position must be left.
        self._max_len = (max_seq_len - 1) // chunk_len * chunk_len
        self._held = [HeldPrefix()] * num_slots
        self._last_used = [0] * num_slots
        self._num_uses = 0

    def hold(self, slot: int, token_ids: Tokens, length: int) -> None:
        """Notes that the slot holds the first `length` tokens, whole chunks, and nothing else to rely on."""
        self._num_uses += 1
        self._last_used[slot] = self._num_uses
        self._held[slot] = HeldPrefix(token_ids, min(length, self._max_len))

    def held_len(self, slot: int) -> int:
        """Tokens that the slot holds."""
        return self._held[slot].length

    def match(self, slot: int, prompt_ids: Tokens, limit: int) -> int:
        """Tokens of the prompt that the slot holds, at most `limit`."""
        return self._held[slot].match(prompt_ids, limit, self._chunk_len)

    def find(self, prompt_ids: Tokens, limit: int, preferred: int) -> tuple[int, int]:
        """The slot that holds most of the prompt, `preferred` where several do, and how many tokens."""
        lengths = [self.match(slot, prompt_ids, limit) for slot in range(len(self._held))]
        best = max(lengths)
        return (preferred if lengths[preferred] == best else lengths.index(best)), best

    def staleness(self, slot: int) -> int:
        """0 for a slot that holds nothing; else the higher, the more recently it was used."""
        return self._last_used[slot] if self._held[slot].length else 0


def reusable_len(chunks: Sequence[ChunkSpan], chunk_len: int) -> int:
    """Tokens in whole chunks that hold what any prompt with the same beginning would have there.

    Args:
        chunks: Those that were run, in order.
        chunk_len: The largest prefill bucket.
    """
    length = 0
    for chunk in chunks:
        if chunk.start == length and chunk.end - chunk.start == chunk_len:
            length = chunk.end
        else:  # the last chunk of a prompt; one that starts early writes over whole ones
            length = min(length, chunk.start // chunk_len * chunk_len)
    return length
