from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.bench.workload import (
    WORKLOADS,
    Capacity,
    Lengths,
    PromptSource,
    fit_lengths,
    plan_loads,
    read_mixed_lengths,
)


def test_loads_that_fit_are_as_defined() -> None:
    loads, left_out = plan_loads(WORKLOADS, (1, 4, 8, 16), Capacity(2048, 16))
    assert left_out == []
    assert [(load.workload, load.concurrency) for load in loads] == [
        ("W1", 1), ("W1", 4), ("W1", 8), ("W1", 16), ("W2", 1), ("W3", 8), ("W4", 8),
    ]  # fmt: skip
    assert all(load.note is None for load in loads)
    assert loads[1].lengths == (Lengths(32, 128),) * 4
    assert loads[4].lengths == (Lengths(1024, 1),)
    assert loads[5].lengths == loads[6].lengths == read_mixed_lengths()


def test_mixed_requests_are_32_that_need_626_positions_at_most() -> None:
    lengths = read_mixed_lengths()
    assert len(lengths) == 32
    assert max(each.total for each in lengths) == 625
    assert sum(each.max_tokens for each in lengths) == 2488


def test_what_does_not_fit_is_left_out_or_scaled_and_said() -> None:
    loads, left_out = plan_loads(WORKLOADS, (1, 4, 8), Capacity(256, 4))
    assert [(each.workload, each.concurrency) for each in left_out] == [("W1", 8)]
    assert "batch_size, 4" in left_out[0].reason
    by_name = {load.workload: load for load in loads}
    assert by_name["W1"].note is None
    assert by_name["W2"].lengths == (Lengths(255, 1),)
    assert by_name["W2"].note == "lengths scaled by 0.25 to fit 256 tokens"
    assert by_name["W3"].concurrency == by_name["W4"].concurrency == 4
    assert "4 instead of 8 at a time" in (by_name["W3"].note or "")


@given(
    st.lists(st.builds(Lengths, st.integers(1, 2000), st.integers(1, 300)), min_size=1, max_size=8), st.integers(2, 900)
)
def test_fitted_lengths_fit_and_are_never_empty(wanted: list[Lengths], max_seq_len: int) -> None:
    fitted = fit_lengths(tuple(wanted), max_seq_len)
    assert all(each.prompt_len >= 1 and each.max_tokens >= 1 for each in fitted)
    assert all(each.total <= max_seq_len for each in fitted)
    if max(each.total for each in wanted) <= max_seq_len:
        assert fitted == tuple(wanted)


def test_prompts_follow_from_seed_and_round() -> None:
    (load,), _ = plan_loads(("W1",), (4,), Capacity(256, 4))
    source = PromptSource((5, 6, 7, 8, 9), seed=1)
    first = source.draw(load, 0)
    assert first == source.draw(load, 0)
    assert first != source.draw(load, 1)
    assert first != PromptSource(source.usable_ids, seed=2).draw(load, 0)
    assert [len(each.prompt_ids) for each in first] == [32] * 4
    assert {token_id for each in first for token_id in each.prompt_ids} <= set(source.usable_ids)


@pytest.mark.parametrize("name", ["W3", "W4"])
def test_the_mixed_load_is_scaled_by_one_factor(name: str) -> None:
    (load,), _ = plan_loads((name,), (), Capacity(313, 8))  # type: ignore[arg-type]
    for given_, fitted in zip(read_mixed_lengths(), load.lengths, strict=True):
        assert abs(fitted.total - given_.total * 313 / 625) <= 1
