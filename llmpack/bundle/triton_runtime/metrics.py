"""Metrics beside Triton's own at its /metrics.

Source of the `vllm:` names, labels and bounds: triton-inference-server/vllm_backend, `src/utils/metrics.py` of branch
r26.01. The `llmpack:` ones say what only a slot cache has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmpack.runtime.metrics import EngineMetrics

_FIRST_TOKEN_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
_TOKEN_BOUNDS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_REQUEST_BOUNDS_S = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
_CHOICE_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)
_COUNTERS = {
    "vllm:prompt_tokens_total": "Prompt tokens of finished requests.",
    "vllm:generation_tokens_total": "Generated tokens of finished requests.",
}
_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("Time to the first token.", _FIRST_TOKEN_BOUNDS_S),
    "vllm:time_per_output_token_seconds": ("Time per token after the first.", _TOKEN_BOUNDS_S),
    "vllm:e2e_request_latency_seconds": ("From arrival to the last token.", _REQUEST_BOUNDS_S),
    "vllm:request_prompt_tokens": ("Prompt tokens per request.", None),
    "vllm:request_generation_tokens": ("Generated tokens per request.", None),
    "vllm:request_params_n": ("Choices per request.", _CHOICE_BOUNDS),
}
_GAUGES = {
    "llmpack:num_requests_running": "Sequences that hold a slot.",
    "llmpack:num_requests_waiting": "Sequences in the queue.",
    "llmpack:kv_cache_usage_perc": "Tokens in slots over all positions of all slots, 0 to 1.",
}
_SHARING = {
    "llmpack:num_instances": "Instances that share the engine.",
    "llmpack:num_guest_requests": "Unfinished requests that other instances have handed over.",
}


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """What one finished request was like; times in seconds.

    Attributes:
        first_token_s: None when there was no token.
    """

    num_choices: int
    num_prompt_tokens: int
    num_output_tokens: int
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many instances use the engine, and how many requests of others than its own are there."""

    num_instances: int = 1
    num_guest_requests: int = 0


class TritonMetrics:
    """The metric families of one model. Every call asks the server, so none is made per token.

    Args:
        pb_utils: Triton's module.
        labels: `model` and `version`.
        max_seq_len: The largest length that a histogram tells apart.
    """

    def __init__(self, pb_utils: Any, labels: dict[str, str], max_seq_len: int) -> None:
        self._families: list[Any] = []  # a metric lives as long as its family
        self._metrics: dict[str, Any] = {}
        kind = pb_utils.MetricFamily
        for name, text in _COUNTERS.items():
            self._add(name, kind(name=name, description=text, kind=kind.COUNTER), labels)
        for name, text in (_GAUGES | _SHARING).items():
            self._add(name, kind(name=name, description=text, kind=kind.GAUGE), labels)
        for name, (text, bounds) in _HISTOGRAMS.items():
            family = kind(name=name, description=text, kind=kind.HISTOGRAM)
            self._add(name, family, labels, buckets=list(bounds or _length_bounds(max_seq_len)))
        self._load: dict[str, float] = {}

    def _add(self, name: str, family: Any, labels: dict[str, str], **settings: Any) -> None:
        self._families.append(family)
        self._metrics[name] = family.Metric(labels=labels, **settings)

    def observe(self, figures: RequestFigures) -> None:
        """Counts a finished request."""
        metrics = self._metrics
        metrics["vllm:prompt_tokens_total"].increment(figures.num_prompt_tokens)
        metrics["vllm:generation_tokens_total"].increment(figures.num_output_tokens)
        observed = {
            "vllm:e2e_request_latency_seconds": figures.total_s,
            "vllm:request_prompt_tokens": figures.num_prompt_tokens,
            "vllm:request_generation_tokens": figures.num_output_tokens,
            "vllm:request_params_n": figures.num_choices,
        }
        if figures.first_token_s is not None:
            observed["vllm:time_to_first_token_seconds"] = figures.first_token_s
            if figures.num_output_tokens > figures.num_choices:
                rest = figures.num_output_tokens - figures.num_choices
                observed["vllm:time_per_output_token_seconds"] = (figures.total_s - figures.first_token_s) / rest
        for name, value in observed.items():
            metrics[name].observe(value)

    def set_load(self, engine: EngineMetrics, sharing: Sharing) -> None:
        """Sets the gauges that changed."""
        snapshot = engine.snapshot()
        load = {name: float(getattr(snapshot, name.removeprefix("llmpack:"))) for name in _GAUGES}
        load |= {name: float(getattr(sharing, name.removeprefix("llmpack:"))) for name in _SHARING}
        for name, value in load.items():
            if self._load.get(name) != value:
                self._metrics[name].set(value)
        self._load = load


def _length_bounds(max_seq_len: int) -> list[float]:
    """1, 2, 5, 10, 20, 50 ... below max_seq_len, then max_seq_len itself."""
    bounds = [digit * 10.0**power for power in range(len(str(max_seq_len))) for digit in (1, 2, 5)]
    return [*(bound for bound in bounds if bound < max_seq_len), float(max_seq_len)]
