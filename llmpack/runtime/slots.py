"""Which rows of the KV cache are free."""

from __future__ import annotations


class SlotPool:
    """Hands out slot numbers 0 .. num_slots - 1; who asks chooses among the free ones."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = set(range(num_slots))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    @property
    def free(self) -> list[int]:
        """The slots that nobody holds, lowest first."""
        return sorted(self._free)

    @property
    def taken(self) -> list[int]:
        """The slots that somebody holds, lowest first."""
        return sorted(self._taken)

    def acquire(self, slot: int) -> None:
        """Takes a free slot."""
        assert slot in self._free, f"slot {slot} is not free"
        self._free.remove(slot)
        self._taken.add(slot)

    def release(self, slot: int) -> None:
        """Gives back a slot that was acquired."""
        assert slot in self._taken, f"slot {slot} is not taken"
        self._taken.remove(slot)
        self._free.add(slot)
