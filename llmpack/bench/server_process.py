"""`llmpack serve` as a process of its own, for as long as it is measured."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from llmpack.bench.http_connection import Origin
from llmpack.errors import BenchError
from llmpack.server.options import API_KEY_VARIABLE

_STOP_S = 60


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that answers.

    Attributes:
        origin: Where.
        process_id: For its memory.
    """

    origin: Origin
    process_id: int


@contextmanager
def serve_artifact(artifact: Path, *, num_threads: int = 0) -> Iterator[ServerProcess]:
    """Serves an artifact on a free port of this machine and stops at the end of the block.

    Raises:
        BenchError: The server does not start; its log's end is given.
    """
    command = [sys.executable, "-m", "llmpack", "serve", str(artifact), "--port", "0"]
    command += ["--num-threads", str(num_threads), "--generation-config", "vllm"]
    environment = {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}
    with tempfile.TemporaryFile() as log, _running(command, log, environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            process.wait(_STOP_S)
            raise BenchError("the server does not start", where="llmpack serve", given=read_end(log))
        yield ServerProcess(Origin.parse(url), process.pid)


@contextmanager
def _running(command: list[str], log: IO[bytes], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process:
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a process: gently, and by force if it does not go."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_end(log: IO[bytes], num_bytes: int = 190) -> str:
    """The last words of a log."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - num_bytes))
    return log.read().decode("utf-8", "replace").strip()
