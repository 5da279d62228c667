from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.slots import SlotPool


@given(st.integers(1, 8), st.lists(st.integers(0, 7)))
def test_slots_are_conserved_never_shared_and_lowest_first(num_slots: int, choices: list[int]) -> None:
    pool = SlotPool(num_slots)
    held: list[int] = []
    for choice in choices:
        if choice < 4 and pool.num_free:
            slot = pool.acquire()
            assert slot == min(set(range(num_slots)) - set(held))
            held.append(slot)
        elif held:
            pool.release(held.pop(choice % len(held)))
        assert len(set(held)) == len(held)
        assert pool.num_free + len(held) == num_slots


def test_a_slot_is_not_given_back_twice() -> None:
    pool = SlotPool(2)
    slot = pool.acquire()
    pool.release(slot)
    with pytest.raises(AssertionError, match="not taken"):
        pool.release(slot)


def test_no_slot_is_made_up() -> None:
    pool = SlotPool(1)
    pool.acquire()
    with pytest.raises(AssertionError, match="without a free slot"):
        pool.acquire()
