"""A real Triton server, started by the bundle's own script, and ways to ask it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent.parent
VENV = Path(os.environ.get("TRITON_VENV", ROOT / ".venv-triton"))
PYTHON = VENV / "bin" / "python"
BACKENDS = Path(__file__).parent / "backends"
TUTORIALS = Path(__file__).parent / "tutorials"
GRPC_ASKS = Path(__file__).parent / "grpc_asks.py"


def triton_environment() -> dict[str, str]:
    """The environment in which a bundle's scripts find the server and the Python of its models."""
    path = f"{VENV / 'bin'}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "TRITONSERVER": str(ROOT / "scripts" / "triton-server"),
        "TRITON_VENV": str(VENV),
        "TRITON_EXTRA_BACKENDS": str(BACKENDS),
    }


@dataclass(frozen=True)
class Triton:
    """A server that is live."""

    process: subprocess.Popen[bytes]
    http_url: str
    grpc_url: str
    metrics_url: str
    log: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=120))

    def load(self, model: str) -> httpx.Response:
        return self.client.post(f"{self.http_url}/v2/repository/models/{model}/load")

    def generate(self, model: str, **body: Any) -> httpx.Response:
        return self.client.post(f"{self.http_url}/v2/models/{model}/generate", json=body)

    def generate_stream(self, model: str, **body: Any) -> list[dict[str, Any]]:
        """The events of a stream."""
        url = f"{self.http_url}/v2/models/{model}/generate_stream"
        with self.client.stream("POST", url, json=body) as response:
            lines = [line for line in response.iter_lines() if line]
        return [json.loads(line.removeprefix("data:")) for line in lines]

    def ask(self, asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answers over gRPC, all asked at once."""
        command = [str(PYTHON), str(GRPC_ASKS), self.grpc_url]
        done = subprocess.run(command, input=json.dumps(asks), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = self.client.get(f"{self.metrics_url}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def wait_until_idle(self, timeout_s: float) -> None:
        """Waits until no sequence runs or waits."""
        deadline_s = time.monotonic() + timeout_s
        names = ("llmpack:num_requests_running", "llmpack:num_requests_waiting")
        while any(self.metric(name) for name in names):
            assert time.monotonic() < deadline_s, "slots are still taken"
            time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.contextmanager
def serving(
    bundle: Path, *models: str, completes_configs: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Triton]:
    """Runs `bundle`/serve.sh with the models loaded; at the end the server must stop and leave nothing behind.

    Args:
        bundle: What is served.
        models: Loaded before the block begins.
        completes_configs: Triton may complete a config, which takes longer and which no emitted config needs.
        environment: More variables for the server.
    """
    http, grpc, metrics = free_ports(3)
    command = [str(bundle / "serve.sh"), "--http", str(http), "--grpc", str(grpc), "--metrics", str(metrics)]
    command += ["--model-control-mode=explicit"]
    command += [] if completes_configs else ["--disable-auto-complete-config"]
    variables = triton_environment() | dict(environment or {})
    before = _list_traces()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=sink, env=variables, start_new_session=True)
        urls = (f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", f"http://127.0.0.1:{metrics}")
        server = Triton(process, *urls, log)
        try:
            _wait_until_live(server)
            for model in models:
                response = server.load(model)
                assert response.status_code == 200, response.text
            yield server
            server.client.close()  # open connections keep the server until its exit timeout
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0, log.read_text()
            assert not _is_alive(process.pid), "processes are left"
            assert _list_traces() <= before, "shared memory or temporary directories are left"
        finally:
            server.client.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _list_traces() -> set[str]:
    """What a Python backend has outside its server while it runs: shared memory and a directory for environments."""
    return {*os.listdir("/dev/shm"), *(path.name for path in Path("/tmp").glob("python_env_*"))}


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_until_live(server: Triton) -> None:
    deadline_s = time.monotonic() + 60
    while True:
        with contextlib.suppress(httpx.TransportError):
            if server.client.get(f"{server.http_url}/v2/health/live").status_code == 200:
                return
        assert server.process.poll() is None, server.log.read_text()
        assert time.monotonic() < deadline_s, server.log.read_text()
        time.sleep(0.1)
