"""Counters, gauges and histograms of the engine, as plain numbers.

The engine thread writes them; any other thread may call `EngineMetrics.snapshot()` at any time. There is no lock:
each number is one Python object, so a reader sees a value that was true a moment ago. A histogram's count is derived
from the same copy as its buckets and so always agrees with them; its sum may be one observation ahead or behind.

Source of names, meanings and bucket bounds: vLLM 0.32 `v1/metrics/loggers.py`, without its `vllm:` prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from llmpack.runtime.request import FinishReason, GenerationRequest

FinishLabel = Literal["stop", "length", "abort", "error"]
RejectionReason = Literal["queue_full", "context_length_exceeded", "duplicate_request", "invalid_request"]

_FINISH_LABELS: tuple[FinishLabel, ...] = ("stop", "length", "abort", "error")
_REJECTION_REASONS: tuple[RejectionReason, ...] = (
    "queue_full",
    "context_length_exceeded",
    "duplicate_request",
    "invalid_request",
)
_FIRST_TOKEN_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BOUNDS_S = (
    *(0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def _length_bounds(max_seq_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to and including max_seq_len."""
    bounds = [digit * 10**power for power in range(len(str(max_seq_len))) for digit in (1, 2, 5)]
    return (*(bound for bound in bounds if bound < max_seq_len), max_seq_len)


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """A histogram at one moment.

    Attributes:
        bounds: Upper bounds (inclusive), ascending, without the last +Inf.
        cumulative: Observations at or below each bound, then all of them: one more than `bounds`.
        sum: Sum of all observations.
    """

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return self.cumulative[-1]


class Histogram:
    """Counts observations into buckets with inclusive upper bounds."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Adds one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def snapshot(self) -> HistogramSnapshot:
        """The present state, unaffected by later observations."""
        return HistogramSnapshot(self._bounds, tuple(accumulate(self._counts.copy())), self._sum)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All metrics at one moment.

    Attributes:
        num_requests_running: Sequences that hold a slot.
        num_requests_waiting: Sequences in the queue.
        kv_cache_usage_perc: Tokens in slots over all positions of all slots, in [0, 1].
        prompt_tokens: Tokens of all completely prefilled prompts.
        generation_tokens: Sampled tokens.
        prefix_cache_queries: Tokens of all prompts that began their prefill.
        prefix_cache_hits: Those out of them that stood in a slot already and were not computed again.
        request_success: Finished sequences by reason: stop, length, abort, error.
        admission_rejections: Refused requests by reason: queue_full, context_length_exceeded, duplicate_request,
            invalid_request.
        histograms: By name; names that end in `_seconds` are in seconds, the others in tokens.
    """

    num_requests_running: int
    num_requests_waiting: int
    kv_cache_usage_perc: float
    prompt_tokens: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    request_success: Mapping[FinishLabel, int]
    admission_rejections: Mapping[RejectionReason, int]
    histograms: Mapping[str, HistogramSnapshot]


@dataclass(slots=True)
class SequenceTimes:
    """When things happened to one sequence, on the engine's clock, in seconds; None until they do."""

    arrived_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None


class EngineMetrics:
    """What the engine counts. Only the engine's thread calls the writing methods, except `count_rejection`.

    N sequences of P prompt tokens that generate G tokens each leave prompt_tokens = N*P, generation_tokens = N*G, N
    observations of the time to the first token and N*(G-1) of the latency between tokens.
    """

    def __init__(self, max_seq_len: int) -> None:
        self._running = 0
        self._waiting = 0
        self._kv_cache_usage = 0.0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._prefix_queries = 0
        self._prefix_hits = 0
        self._finished: dict[FinishLabel, int] = dict.fromkeys(_FINISH_LABELS, 0)
        self._rejected: dict[RejectionReason, int] = dict.fromkeys(_REJECTION_REASONS, 0)
        lengths = _length_bounds(max_seq_len)
        self._histograms = {
            "time_to_first_token_seconds": Histogram(_FIRST_TOKEN_BOUNDS_S),
            "inter_token_latency_seconds": Histogram(_TOKEN_BOUNDS_S),
            "request_time_per_output_token_seconds": Histogram(_TOKEN_BOUNDS_S),
            "e2e_request_latency_seconds": Histogram(_REQUEST_BOUNDS_S),
            "request_queue_time_seconds": Histogram(_REQUEST_BOUNDS_S),
            "request_inference_time_seconds": Histogram(_REQUEST_BOUNDS_S),
            "request_prefill_time_seconds": Histogram(_REQUEST_BOUNDS_S),
            "request_decode_time_seconds": Histogram(_REQUEST_BOUNDS_S),
            "request_prompt_tokens": Histogram(lengths),
            "request_generation_tokens": Histogram(lengths),
            "request_params_max_tokens": Histogram(lengths),
            "iteration_tokens_total": Histogram(_STEP_BOUNDS),
        }

    def set_load(self, *, running: int, waiting: int, kv_cache_usage: float) -> None:
        """Sets the gauges; `kv_cache_usage` is a fraction in [0, 1]."""
        self._running = running
        self._waiting = waiting
        self._kv_cache_usage = kv_cache_usage

    def count_rejection(self, reason: RejectionReason) -> None:
        """Counts a refused request. Callers of different threads must hold a common lock."""
        self._rejected[reason] += 1

    def count_step(self, num_tokens: int) -> None:
        """Counts the tokens, prompt and output, that one step put through the model."""
        self._observe("iteration_tokens_total", num_tokens)

    def count_prompt(self, num_tokens: int) -> None:
        """Counts a prompt that is completely in its slot."""
        self._prompt_tokens += num_tokens

    def count_prefix(self, num_tokens: int, num_reused: int) -> None:
        """Counts a prompt that begins, and how many of its tokens need not be computed."""
        self._prefix_queries += num_tokens
        self._prefix_hits += num_reused

    def count_token(self, times: SequenceTimes, now_s: float) -> None:
        """Counts one sampled token and notes its time in `times`."""
        self._generation_tokens += 1
        if times.last_token_s is None:
            times.first_token_s = now_s
            self._observe("time_to_first_token_seconds", now_s - times.arrived_s)
        else:
            self._observe("inter_token_latency_seconds", now_s - times.last_token_s)
        times.last_token_s = now_s

    def count_failure(self) -> None:
        """Counts a sequence that ended because of an error of its own."""
        self._finished["error"] += 1

    def count_finish(self, reason: FinishReason, request: GenerationRequest, num_tokens: int) -> None:
        """Counts a finished sequence and, unless it was aborted, its lengths."""
        self._finished[reason] += 1
        if reason != "abort":
            self._observe("request_prompt_tokens", len(request.prompt_ids))
            self._observe("request_generation_tokens", num_tokens)
            self._observe("request_params_max_tokens", request.max_tokens)

    def observe_times(self, times: SequenceTimes, num_tokens: int, now_s: float) -> None:
        """Observes how long each phase of a completed sequence took."""
        admitted_s = times.arrived_s if times.admitted_s is None else times.admitted_s
        first_s = now_s if times.first_token_s is None else times.first_token_s
        last_s = now_s if times.last_token_s is None else times.last_token_s
        self._observe("e2e_request_latency_seconds", now_s - times.arrived_s)
        self._observe("request_queue_time_seconds", admitted_s - times.arrived_s)
        self._observe("request_prefill_time_seconds", first_s - admitted_s)
        self._observe("request_decode_time_seconds", last_s - first_s)
        self._observe("request_inference_time_seconds", last_s - admitted_s)
        if num_tokens > 1:
            self._observe("request_time_per_output_token_seconds", (last_s - first_s) / (num_tokens - 1))

    def snapshot(self) -> MetricsSnapshot:
        """All metrics at this moment; safe from any thread and never blocks the engine."""
        return MetricsSnapshot(
            num_requests_running=self._running,
            num_requests_waiting=self._waiting,
            kv_cache_usage_perc=self._kv_cache_usage,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            prefix_cache_queries=self._prefix_queries,
            prefix_cache_hits=self._prefix_hits,
            request_success=self._finished.copy(),
            admission_rejections=self._rejected.copy(),
            histograms={name: histogram.snapshot() for name, histogram in self._histograms.items()},
        )

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)
