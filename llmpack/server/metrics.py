"""GET /metrics: the engine's numbers and the HTTP side's, read when Prometheus asks.

Every sample is called `llmpack:*`, and `vllm:*` too unless that is turned off, so that dashboards and autoscalers made
for vLLM work. Source of names and labels: vLLM 0.32 `v1/metrics/loggers.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from llmpack.runtime.metrics import Histogram, HistogramSnapshot, MetricsSnapshot
from llmpack.server.context import ServerContext

_DURATION_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_LABELS = ("model_name", "engine")
_DOCUMENTATION = {
    "num_requests_running": "Sequences that hold a slot.",
    "num_requests_waiting": "Sequences in the queue.",
    "kv_cache_usage_perc": "Tokens in slots over all positions of all slots, 0 to 1.",
    "prompt_tokens": "Tokens of all prompts that are completely in their slots.",
    "generation_tokens": "Sampled tokens.",
    "prefix_cache_queries": "Tokens of all prompts that began.",
    "prefix_cache_hits": "Prompt tokens that stood in a slot already and were not computed again.",
    "request_success": "Finished sequences by reason.",
    "admission_rejections": "Refused requests by reason.",
    "cache_config_info": "The compiled cache.",
}


class HttpMetrics:
    """Counts answered requests; only the event loop calls it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.durations: dict[tuple[str, str], Histogram] = {}

    def observe(self, handler: str, method: str, status: int, duration_s: float) -> None:
        """Counts one answer.

        Args:
            handler: The route's path pattern, never the path itself: the number of label values stays small.
            method: Of the request.
            status: Of the answer; 499 when the client left before it.
            duration_s: From the head of the request to the end of the answer.
        """
        self.requests[handler, method, str(status)] += 1
        self.durations.setdefault((handler, method), Histogram(_DURATION_BOUNDS_S)).observe(duration_s)


class ServerCollector(Collector):
    """Yields all metrics at scrape time from snapshots, so that counting costs the engine nothing.

    Args:
        context: The engine, the model and the options.
        http: The HTTP side.
    """

    def __init__(self, context: ServerContext, http: HttpMetrics) -> None:
        self._context = context
        self._http = http
        self._prefixes = ("llmpack:", "vllm:") if context.options.vllm_metrics else ("llmpack:",)
        self._labels = (context.model.names[0], "0")

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read the engine."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        snapshot = self._context.engine.metrics.snapshot()
        for prefix in self._prefixes:
            yield from self._gauges(prefix, snapshot)
            yield from self._counters(prefix, snapshot)
            for name, histogram in snapshot.histograms.items():
                yield self._histogram(prefix, name, histogram)
        yield from self._http_families()

    def _gauges(self, prefix: str, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            gauge = GaugeMetricFamily(prefix + name, _DOCUMENTATION[name], labels=_LABELS)
            gauge.add_metric(self._labels, getattr(snapshot, name))
            yield gauge
        yield self._cache_info(prefix)

    def _cache_info(self, prefix: str) -> Metric:
        max_seq_len, batch_size = self._context.model.limits.max_seq_len, self._context.model.batch_size
        values = {
            "block_size": max_seq_len,
            "num_gpu_blocks": batch_size,
            "kv_cache_size_tokens": max_seq_len * batch_size,
        }
        labels = (*_LABELS, *values)
        info = GaugeMetricFamily(prefix + "cache_config_info", _DOCUMENTATION["cache_config_info"], labels=labels)
        info.add_metric((*self._labels, *map(str, values.values())), 1)
        return info

    def _counters(self, prefix: str, snapshot: MetricsSnapshot) -> Iterator[Metric]:
        for name in ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits"):
            counter = CounterMetricFamily(prefix + name, _DOCUMENTATION[name], labels=_LABELS)
            counter.add_metric(self._labels, getattr(snapshot, name))
            yield counter
        for name, label in (("request_success", "finished_reason"), ("admission_rejections", "reason")):
            counter = CounterMetricFamily(prefix + name, _DOCUMENTATION[name], labels=(*_LABELS, label))
            for reason, count in getattr(snapshot, name).items():
                counter.add_metric((*self._labels, reason), count)
            yield counter

    def _histogram(self, prefix: str, name: str, histogram: HistogramSnapshot) -> Metric:
        unit = "seconds" if name.endswith("_seconds") else "tokens"
        words = name.removesuffix("_seconds").replace("_", " ")
        family = HistogramMetricFamily(prefix + name, f"{words.capitalize()}, in {unit}.", labels=_LABELS)
        family.add_metric(self._labels, _buckets(histogram), histogram.sum)
        return family

    def _http_families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("http_requests", "Answers.", labels=("handler", "method", "status"))
        for key, count in self._http.requests.items():
            requests.add_metric(key, count)
        yield requests
        durations = HistogramMetricFamily(
            "http_request_duration_seconds", "From a request's head to its answer's end.", labels=("handler", "method")
        )
        for labels, histogram in self._http.durations.items():
            snapshot = histogram.snapshot()
            durations.add_metric(labels, _buckets(snapshot), snapshot.sum)
        yield durations


def _buckets(histogram: HistogramSnapshot) -> list[tuple[str, float]]:
    bounds = [*map(str, map(float, histogram.bounds)), "+Inf"]
    return list(zip(bounds, map(float, histogram.cumulative), strict=True))


def build_registry(context: ServerContext, http: HttpMetrics) -> CollectorRegistry:
    """A registry with this server's metrics and nothing of the process's."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(context, http))
    return registry


async def metrics(request: Request) -> Response:
    """All metrics, in the text format or, if asked for, as OpenMetrics."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    registry: CollectorRegistry = request.app.state.registry
    return Response(encode(registry), headers={"Content-Type": content_type})
