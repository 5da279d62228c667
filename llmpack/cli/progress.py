"""A compile's progress on stderr: a bar per phase before a person, one line per phase in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from llmpack.cli.console import stderr_console, talk

if TYPE_CHECKING:
    from rich.progress import TaskID


class ProgressBars:
    """Receives the phases of a compile (`compiler.progress.CompileProgress`); a context manager."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=stderr_console(),
        )
        self._is_piped = not sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the bars as they are."""
        self._finish(complete=error is None)
        self._bars.stop()

    def start(self, phase: str, total: int, unit: str) -> None:
        """Ends the present phase and begins another of `total` units."""
        self._finish(complete=True)
        self._task = self._bars.add_task(phase, total=total)
        if self._is_piped:
            talk(f"{time.monotonic() - self._started_s:6.1f} s  {phase} ({total} {unit})")

    def advance(self, amount: int) -> None:
        """Moves the bar of the present phase."""
        if self._task is not None:
            self._bars.advance(self._task, amount)

    def _finish(self, *, complete: bool) -> None:
        if self._task is not None and complete:
            self._bars.update(self._task, completed=self._bars.tasks[self._task].total)
