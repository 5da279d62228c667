"""Throughput and latency against concurrency, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmpack.bench.report import BenchReport, Measurement
from llmpack.bench.workload import WorkloadName
from llmpack.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (10.0, 4.5)


def check_plot(path: Path, workloads: Sequence[WorkloadName] | None) -> None:
    """Makes sure, before anything is measured, that a picture can be drawn and written.

    Args:
        path: Where it is to be written.
        workloads: What is to be measured; None for all.

    Raises:
        UsageError: matplotlib is missing, the name ends in no known format, the directory does not exist, or W1, which
            is what is drawn, is not measured.
    """
    if workloads is not None and "W1" not in workloads:
        raise UsageError(
            "W1 is what is drawn", where="--plot", given=", ".join(workloads), allowed="--workload with W1"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise UsageError(
            "drawing needs matplotlib", where="--plot", next_step="pip install 'llmpack[bench]'"
        ) from error
    formats = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.lstrip(".") not in formats:
        allowed = ", ".join(f".{name}" for name in sorted(formats))
        raise UsageError("no format that can be drawn", where="--plot", given=str(path), allowed=allowed)
    if not path.absolute().parent.is_dir():
        raise UsageError("the directory does not exist", where="--plot", given=str(path))


def draw(report: BenchReport, path: Path) -> None:
    """Writes the picture of W1: one line per target, with the spread of the rounds.

    Args:
        report: With W1.
        path: That `check_plot` found good.
    """
    from matplotlib.figure import Figure

    cells = [each for each in report.measurements if each.workload == "W1"]
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    throughput, latency = figure.subplots(1, 2)
    for target in dict.fromkeys(each.target for each in cells):
        line = sorted((each for each in cells if each.target == target), key=lambda each: each.concurrency)
        _draw_throughput(throughput, target, line)
        _draw_latency(latency, target, line)
    for axes, label in ((throughput, "output tokens/s"), (latency, "ms")):
        _finish(axes, label, sorted({each.concurrency for each in cells}))
    artifact = report.artifact
    figure.suptitle(f"{artifact.model}, {artifact.engine}, {artifact.dtype}, quantization {artifact.quantization}\n"
                    f"{report.machine.cpu}, build {artifact.build_id[:12]}", fontsize="medium")  # fmt: skip
    figure.savefig(path, dpi=120)


def _draw_throughput(axes: Axes, target: str, line: Sequence[Measurement]) -> None:
    at = [each.concurrency for each in line]
    (drawn,) = axes.plot(at, [each.output_tokens_per_s.median for each in line], marker="o", label=target)
    lows = [each.output_tokens_per_s.low for each in line]
    highs = [each.output_tokens_per_s.high for each in line]
    axes.fill_between(at, lows, highs, alpha=0.2, color=drawn.get_color())


def _draw_latency(axes: Axes, target: str, line: Sequence[Measurement]) -> None:
    at = [each.concurrency for each in line]
    (drawn,) = axes.plot(at, [1e3 * each.ttft_s.p50 for each in line], marker="o", label=f"{target}: first token, p50")
    gaps = [(each.concurrency, 1e3 * each.itl_s.p50) for each in line if each.itl_s is not None]
    if gaps:
        label = f"{target}: between tokens, p50"
        axes.plot(*zip(*gaps, strict=True), marker="s", linestyle="--", color=drawn.get_color(), label=label)
    axes.set_yscale("log")


def _finish(axes: Axes, label: str, concurrencies: Sequence[int]) -> None:
    axes.set_xlabel("requests at a time")
    axes.set_ylabel(label)
    axes.set_xticks(concurrencies)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
