from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.bench.summary import compare, summarize
from llmpack.bench.timing import RequestTimes, Round, Spread, StepAccount, percentile
from llmpack.bench.workload import Lengths, Load

LOAD = Load("W1", 2, (Lengths(10, 4), Lengths(10, 2)))


def make_round(scale: float = 1.0) -> Round:
    """Two requests: 4 tokens from 1 to 4 s, 2 tokens from 2 to 3 s; 20 prompt tokens."""
    first = RequestTimes(0.0, tuple(scale * second for second in (1, 2, 3, 4)), 4 * scale, 10, 4)
    second = RequestTimes(0.0, (2 * scale, 3 * scale), 3 * scale, 10, 2)
    return Round((first, second), StepAccount(num_steps=10, num_tokens=20, total_s=2.0 * scale, runner_s=1.5 * scale))


def test_a_cell_from_its_rounds() -> None:
    cell = summarize(LOAD, "engine", [make_round(), make_round(2.0), make_round(4.0)], 1 << 20)
    assert (cell.num_requests, cell.prompt_tokens, cell.output_tokens) == (2, 20, 6)
    assert cell.duration_s == Spread(median=8.0, low=4.0, high=16.0, noise=1.5)
    assert cell.output_tokens_per_s.median == 6 / 8
    assert cell.total_tokens_per_s.median == 26 / 8
    assert cell.ttft_s.p50 == 3.0  # of 1, 2, 2, 4, 4, 8
    assert cell.itl_s is not None
    assert cell.itl_s.p50 == 2.0  # four gaps in each round, of 1, 2 and 4 s
    assert cell.prefill_tokens_per_s is None  # two requests wait for each other
    assert cell.steps is not None
    assert cell.steps.num_steps == 30
    assert cell.steps.step_s.median == pytest.approx(0.4)
    assert cell.steps.decode_tokens_per_s.median == pytest.approx(5.0)
    assert cell.steps.overhead_s.median == pytest.approx(0.1)
    assert cell.steps.overhead_share.median == pytest.approx(0.25)
    assert cell.peak_memory_bytes == 1 << 20
    assert cell.notes == []


def test_prefill_speed_of_one_request_alone() -> None:
    load = Load("W2", 1, (Lengths(100, 1),))
    measured = Round((RequestTimes(5.0, (7.0,), 7.0, 100, 1),))
    cell = summarize(load, "engine", [measured], None)
    assert cell.prefill_tokens_per_s is not None
    assert cell.prefill_tokens_per_s.median == 50.0
    assert (cell.itl_s, cell.steps) == (None, None)


def test_outputs_that_end_early_are_said() -> None:
    short = Round((RequestTimes(0.0, (1.0,), 1.0, 10, 1), RequestTimes(0.0, (1.0, 2.0), 2.0, 10, 2)))
    (note,) = summarize(LOAD, "url", [short, make_round()], None).notes
    assert note.startswith("1 of 4 outputs ended early")


def test_ratios_are_of_rounds_that_ran_together() -> None:
    """A machine that becomes slow for both from one round to the next changes no ratio."""
    ours = [make_round(1.0), make_round(10.0), make_round(3.0)]
    theirs = [make_round(2.0), make_round(20.0), make_round(6.0)]
    pair = compare(LOAD, "other", ours, theirs)
    assert pair.throughput_ratio == Spread(median=2.0, low=2.0, high=2.0, noise=0.0)
    assert pair.ttft_ratio.median == 2.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    assert percentile(sorted(values), percent) == pytest.approx(
        float(np.percentile(values, percent)), rel=1e-9, abs=1e-9
    )
