from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.slots import SlotPool


@given(st.integers(1, 8), st.lists(st.integers(0, 7)))
def test_slots_are_conserved_and_never_shared(num_slots: int, choices: list[int]) -> None:
    pool = SlotPool(num_slots)
    held: set[int] = set()
    for choice in choices:
        if choice < 4 and pool.num_free:
            slot = pool.free[choice % pool.num_free]
            pool.acquire(slot)
            assert slot not in held
            held.add(slot)
        elif held:
            slot = sorted(held)[choice % len(held)]
            pool.release(slot)
            held.remove(slot)
        assert pool.taken == sorted(held)
        assert pool.free == sorted(set(range(num_slots)) - held)
        assert pool.num_free + len(held) == num_slots


def test_a_slot_is_not_given_back_twice() -> None:
    pool = SlotPool(2)
    pool.acquire(1)
    pool.release(1)
    with pytest.raises(AssertionError, match="not taken"):
        pool.release(1)


@pytest.mark.parametrize("slot", [0, 1])
def test_no_slot_is_given_twice_or_made_up(slot: int) -> None:
    pool = SlotPool(1)
    pool.acquire(0)
    with pytest.raises(AssertionError, match="not free"):
        pool.acquire(slot)
