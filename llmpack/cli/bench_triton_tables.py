"""The tables of `llmpack bench --triton`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmpack.cli.bench_tables import format_number, format_spread
from llmpack.cli.console import print_grid

if TYPE_CHECKING:
    from llmpack.bench.timing import Percentiles, Spread
    from llmpack.bench.triton_report import TritonCell, TritonLatency, TritonReport

_OURS = (
    ("llmpack, dynamic batching", "dynamic", "llmpack"),
    ("llmpack, continuous batching", "continuous", "llmpack"),
)
_SYSTEMS_1 = (("transformers, one by one", "sequential", "transformers"), *_OURS)
_SYSTEMS_2 = (("transformers, dynamic batching", "dynamic", "transformers"), *_OURS)
_LATENCY = (
    "at a time", "serve first token", "triton", "added ms", "serve total", "triton", "added ms",
)  # fmt: skip


def show_triton_report(report: TritonReport) -> None:
    """Prints the two tables, the latencies, and what was left out."""
    settings, machine = report.settings, report.machine
    batch = max(each.num_requests for each in report.cells)
    print_grid(
        f"{report.artifact.model} behind Triton on {machine.cpu}, {machine.num_cpus} processors; {settings.prompt_len} "
        f"tokens in, {settings.max_tokens} out; medians of {settings.repeat} rounds (±: half the spread)\n"
        f"table 1: {batch} requests at once on 1 and on 2 instances",
        _header("1 instance", "2 instances"),
        _rows(report.cells, ((1, batch), (2, batch)), _SYSTEMS_1),
    )
    print_grid(
        f"table 2: 1 request, and {batch} at once, on 1 instance",
        _header("1 request", f"{batch} requests"),
        _rows(report.cells, ((1, 1), (1, batch)), _SYSTEMS_2),
    )
    print_grid(
        "what Triton adds over llmpack serve, streamed; ms, p50 / p90 / p99",
        _LATENCY,
        [_latency_row(each) for each in report.latencies],
    )
    if report.left_out:
        print_grid("left out", ("what", "why"), [(each.workload, each.reason) for each in report.left_out])


def _header(*columns: str) -> Sequence[str]:
    return ("", *(f"{column}{unit}" for column in columns for unit in (": execution s", ": tokens/s")))


def _rows(
    cells: Sequence[TritonCell], columns: Sequence[tuple[int, int]], systems: Sequence[tuple[str, str, str]]
) -> list[Sequence[str]]:
    """One row per system, two entries per column; those of a cell that was left out are dashes."""
    found = {(each.system, each.engine, each.num_instances, each.num_requests): each for each in cells}
    return [
        (name, *(entry for column in columns for entry in _entries(found.get((system, engine, *column)))))
        for name, system, engine in systems
    ]


def _entries(cell: TritonCell | None) -> Sequence[str]:
    return ("-", "-") if cell is None else (format_spread(cell.execution_s), format_spread(cell.tokens_per_s))


def _latency_row(pair: TritonLatency) -> Sequence[str]:
    return (
        str(pair.concurrency),
        _in_ms(pair.serve_ttft_s),
        _in_ms(pair.triton_ttft_s),
        _added(pair.added_ttft_s),
        _in_ms(pair.serve_total_s),
        _in_ms(pair.triton_total_s),
        _added(pair.added_total_s),
    )


def _in_ms(latencies: Percentiles) -> str:
    return " / ".join(format_number(1e3 * value) for value in (latencies.p50, latencies.p90, latencies.p99))


def _added(spread: Spread) -> str:
    """A difference may be negative or near zero, so its range says more than a share of it."""
    return f"{1e3 * spread.median:+.1f} ({1e3 * spread.low:+.1f} to {1e3 * spread.high:+.1f})"
