"""A Triton server, started by a bundle's own script, for as long as it is measured."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from llmpack.bench.http_connection import Connection, Origin
from llmpack.bench.server_process import read_end
from llmpack.errors import BenchError, UsageError

_START_S = 120.0
_STOP_S = 60.0
_POLL_S = 0.1


def check_triton() -> None:
    """Makes sure that there is a Triton server to start.

    Raises:
        UsageError: There is none.
    """
    program = os.environ.get("TRITONSERVER", "tritonserver")
    if shutil.which(program) is None:
        raise UsageError(
            "there is no Triton server", where="TRITONSERVER", given=program, allowed="a program",
            next_step="scripts/triton-environment --with-transformers makes an environment with one; "
            "then PATH=.venv-triton/bin:$PATH TRITONSERVER=scripts/triton-server",
        )  # fmt: skip


@contextmanager
def serve_bundle(bundle: Path, model: str) -> Iterator[Origin]:
    """Runs a bundle's serve.sh on free ports with one model loaded; its HTTP origin.

    Raises:
        BenchError: The server does not start, or cannot load the model; its own words are given.
    """
    http, grpc, metrics = _find_free_ports(3)
    command = [str(bundle / "serve.sh"), "--http", str(http), "--grpc", str(grpc), "--metrics", str(metrics)]
    command += ["--model-control-mode=explicit", "--disable-auto-complete-config"]
    origin = Origin.parse(f"http://127.0.0.1:{http}")
    with tempfile.TemporaryFile() as log, _running(command, log) as process:
        _wait_until_live(process, origin, log)
        _post(origin, f"/v2/repository/models/{model}/load")
        yield origin


@contextmanager
def _running(command: list[str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its children in a group of their own, so that none of them outlives the block."""
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_live(process: subprocess.Popen[bytes], origin: Origin, log: IO[bytes]) -> None:
    deadline_s = time.monotonic() + _START_S
    while not _is_listening(origin):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise BenchError(
                "Triton does not start", where="serve.sh", given=read_end(log),
                next_step="For torch and transformers: scripts/triton-environment --with-transformers",
            )  # fmt: skip
        time.sleep(_POLL_S)


def _is_listening(origin: Origin) -> bool:
    """The HTTP port opens when the server is live."""
    try:
        socket.create_connection((origin.host, origin.port), timeout=1).close()
    except OSError:
        return False
    return True


def _post(origin: Origin, path: str) -> None:
    async def ask() -> Any:
        async with Connection(origin) as connection:
            return await connection.send(path)

    asyncio.run(ask())


def _find_free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
