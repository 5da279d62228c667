from __future__ import annotations

from itertools import pairwise

import pytest

from llmpack.runtime.metrics import EngineMetrics, Histogram, SequenceTimes
from tests.runtime.shapes import make_request


def test_a_histogram_counts_into_inclusive_upper_bounds() -> None:
    histogram = Histogram([1, 2, 5])
    for value in (0.5, 1, 1.5, 5, 6):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    assert snapshot.cumulative == (2, 3, 4, 5)
    assert snapshot.count == 5
    assert snapshot.sum == pytest.approx(14.0)


def test_a_snapshot_does_not_change_afterwards() -> None:
    metrics = EngineMetrics(max_seq_len=100)
    before = metrics.snapshot()
    metrics.count_step(3)
    metrics.count_prompt(3)
    metrics.count_finish("stop", make_request(), num_tokens=1)
    assert before.prompt_tokens == 0
    assert before.request_success["stop"] == 0
    assert before.histograms["iteration_tokens_total"].count == 0
    assert metrics.snapshot().request_success["stop"] == 1


@pytest.mark.parametrize("max_seq_len", [1, 2, 100, 131072])
def test_bounds_ascend_and_lengths_reach_the_longest_sequence(max_seq_len: int) -> None:
    histograms = EngineMetrics(max_seq_len).snapshot().histograms
    for histogram in histograms.values():
        assert all(lower < upper for lower, upper in pairwise(histogram.bounds))
    assert histograms["request_prompt_tokens"].bounds[-1] == max_seq_len


def test_the_phases_of_a_request_add_up() -> None:
    metrics = EngineMetrics(max_seq_len=100)
    times = SequenceTimes(arrived_s=10.0, admitted_s=11.0)
    for now_s in (13.0, 14.0, 17.0):
        metrics.count_token(times, now_s)
    metrics.observe_times(times, num_tokens=3, now_s=17.5)
    sums = {name: histogram.sum for name, histogram in metrics.snapshot().histograms.items()}
    assert sums["request_queue_time_seconds"] == pytest.approx(1.0)
    assert sums["request_prefill_time_seconds"] == pytest.approx(2.0)
    assert sums["request_decode_time_seconds"] == pytest.approx(4.0)
    assert sums["request_inference_time_seconds"] == pytest.approx(6.0)
    assert sums["e2e_request_latency_seconds"] == pytest.approx(7.5)
    assert sums["time_to_first_token_seconds"] == pytest.approx(3.0)
    assert sums["inter_token_latency_seconds"] == pytest.approx(4.0)
    assert sums["request_time_per_output_token_seconds"] == pytest.approx(2.0)
