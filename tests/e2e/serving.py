"""`llmpack compile` and `llmpack serve` as processes of their own, the way a user runs them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

LLMPACK = (sys.executable, "-m", "llmpack")


def compile_artifact(checkpoint: Path, target: Path, *options: str) -> Path:
    """Compiles quietly and returns `target`."""
    command = [*LLMPACK, "compile", str(checkpoint), "-o", str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@dataclass(frozen=True)
class Served:
    """A server process that answers."""

    url: str
    process: subprocess.Popen[str]

    def load(self) -> tuple[int, int]:
        """Sequences that run and that wait."""
        lines = httpx.get(self.url + "/metrics").text.splitlines()
        names = ("llmpack:num_requests_running", "llmpack:num_requests_waiting")
        running, waiting = (next(line for line in lines if line.startswith(name + "{")) for name in names)
        return int(float(running.rsplit(" ", 1)[1])), int(float(waiting.rsplit(" ", 1)[1]))


def serving(artifact: Path, *options: str) -> contextlib.AbstractContextManager[Served]:
    """Serves on a free port; at the end the server must stop by itself and have had no unforeseen error."""
    return running([*LLMPACK, "serve", str(artifact), "--port", "0", *options])


@contextlib.contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """As `serving`, with a command that prints the server's address."""
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment and {**os.environ, **environment}
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                assert url, _read(log)
                yield Served(url, process)
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(timeout=30) == 0, _read(log)
            finally:
                process.kill()
        assert "Traceback" not in _read(log), _read(log)


def _read(log: contextlib.AbstractContextManager[object]) -> str:
    log.seek(0)  # type: ignore[attr-defined]
    return str(log.read())  # type: ignore[attr-defined]
