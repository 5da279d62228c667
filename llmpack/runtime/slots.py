"""Which rows of the KV cache are free."""

from __future__ import annotations

import heapq


class SlotPool:
    """Hands out slot numbers 0 .. num_slots - 1, always the lowest free one.

    Low numbers first keep the running slots close together, and so the decode window small.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._free = list(range(num_slots))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def acquire(self) -> int:
        """Takes the lowest free slot. There must be one."""
        assert self._free, "acquire() without a free slot"
        slot = heapq.heappop(self._free)
        self._taken.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Gives back a slot that was acquired."""
        assert slot in self._taken, f"slot {slot} is not taken"
        self._taken.remove(slot)
        heapq.heappush(self._free, slot)
