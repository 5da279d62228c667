"""The tables of `llmpack bench`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmpack.cli.console import format_bytes, print_grid

if TYPE_CHECKING:
    from llmpack.bench.report import BenchReport, Comparison, Measurement
    from llmpack.bench.timing import Percentiles, Spread

_MEASURED = (
    "load", "target", "at a time", "tokens/s", "first token ms", "between tokens ms", "step ms", "Python", "memory",
)  # fmt: skip
_COMPARED = ("load", "at a time", "other", "throughput", "first token")


def show_report(report: BenchReport) -> None:
    """Prints the tables, and what must be known to read them."""
    print_grid(describe_run(report), _MEASURED, [_measured_row(each) for each in report.measurements])
    if report.comparisons:
        title = "the artifact beside the others: medians of ratios, above 1 is better"
        print_grid(title, _COMPARED, [_compared_row(each) for each in report.comparisons])
    lines = list(_remarks(report))
    if lines:
        print_grid("remarks", ("load", "at a time", ""), lines)


def describe_run(report: BenchReport) -> str:
    """What was measured, where and how, in two lines."""
    artifact, machine, settings = report.artifact, report.machine, report.settings
    threads = "one thread per physical core" if machine.num_threads == 0 else f"{machine.num_threads} threads"
    return (
        f"{artifact.model}, {artifact.engine}, {artifact.dtype}, quantization {artifact.quantization}, "
        f"build {artifact.build_id[:12]}\n"
        f"{machine.cpu}, {machine.num_cpus} processors, {threads}; medians of {settings.repeat} rounds "
        "(±: half the spread), latencies p50 / p90 / p99"
    )


def format_spread(spread: Spread, scale: float = 1.0) -> str:
    """The median and half the spread in percent: "41.2 ±3%"."""
    return f"{format_number(spread.median * scale)} ±{50 * spread.noise:.0f}%"


def format_number(value: float) -> str:
    """Three significant digits, but never an exponent: "1234", "41.2", "0.0123"."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _measured_row(cell: Measurement) -> Sequence[str]:
    speed = cell.output_tokens_per_s
    if cell.prefill_tokens_per_s is not None and cell.output_tokens == 1:
        speed = cell.prefill_tokens_per_s
    steps = cell.steps
    return (
        cell.workload,
        cell.target,
        str(cell.concurrency),
        format_spread(speed) + (" prompt" if speed is cell.prefill_tokens_per_s else ""),
        _format_percentiles(cell.ttft_s),
        _format_percentiles(cell.itl_s),
        "" if steps is None else format_spread(steps.step_s, 1e3),
        "" if steps is None else f"{100 * steps.overhead_share.median:.1f}%",
        "" if cell.peak_memory_bytes is None else format_bytes(cell.peak_memory_bytes),
    )


def _format_percentiles(latencies: Percentiles | None) -> str:
    if latencies is None:
        return ""
    return " / ".join(format_number(1e3 * value) for value in (latencies.p50, latencies.p90, latencies.p99))


def _compared_row(pair: Comparison) -> Sequence[str]:
    ratios = (format_spread(pair.throughput_ratio), format_spread(pair.ttft_ratio))
    return (pair.workload, str(pair.concurrency), pair.target, *ratios)


def _remarks(report: BenchReport) -> Iterator[Sequence[str]]:
    for cell in report.measurements:
        for note in cell.notes:
            yield cell.workload, str(cell.concurrency), f"{cell.target}: {note}"
    for omission in report.left_out:
        yield omission.workload, str(omission.concurrency), f"left out: {omission.reason}"
