"""How a server process ends."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmpack.errors import UsageError
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.options import ServerOptions
from llmpack.server.run import serve
from tests.server.scripted import build_engine, build_model

ROOT = Path(__file__).parents[2]
LONG = {"model": "m", "prompt": "x go", "max_tokens": 50, "ignore_eos": True, "stream": True}


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tests.server.serve_on_paper", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


class Reader(threading.Thread):
    """Reads a stream to its end, or until the connection breaks."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__()
        self.url, self.body = url, body
        self.begun = threading.Event()
        self.content = b""

    def run(self) -> None:
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("POST", self.url + "/v1/completions", json=self.body, timeout=20) as response,
        ):
            for data in response.iter_bytes():
                self.content += data
                self.begun.set()


def start_reader(url: str, body: dict[str, Any]) -> Reader:
    reader = Reader(url, body)
    reader.start()
    assert reader.begun.wait(10)
    return reader


def test_sigterm_lets_running_requests_finish() -> None:
    with process("20", "0.02") as (child, url):
        reader = start_reader(url, LONG)
        child.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert httpx.get(url + "/health").status_code == 503
        refused = httpx.post(url + "/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "server_shutting_down"
        assert "retry-after" in refused.headers
        reader.join(20)
        assert reader.content.endswith(b'"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
        assert child.wait(10) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/health")


def test_what_runs_longer_than_the_timeout_ends_with_an_error_event() -> None:
    with process("0.3", "0.05") as (child, url):
        reader = start_reader(url, LONG | {"max_tokens": 400})
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == 0
        reader.join(5)
        *_, error, done, end = reader.content.split(b"\n\n")
        assert (done, end) == (b"data: [DONE]", b"")
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "server_shutting_down"


def test_an_idle_server_stops_at_once() -> None:
    with process("20", "0") as (child, url):
        assert httpx.get(url + "/health").status_code == 200
        began_s = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 0
        assert time.monotonic() - began_s < 10


def test_a_second_signal_does_not_wait() -> None:
    with process("60", "0.05") as (child, url):
        reader = start_reader(url, LONG | {"max_tokens": 400})
        child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(5) == 128 + signal.SIGTERM
        reader.join(5)


def test_a_dead_engine_fails_its_requests_and_ends_the_process() -> None:
    with process("20", "0", "DIES") as (child, url):
        body = LONG | {"stream": False}
        answer = httpx.post(url + "/v1/completions", json=body)
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_dead")
        assert "paper" not in answer.text
        assert httpx.get(url + "/health").status_code == 503
        assert child.wait(10) == 1


def test_a_port_in_use_is_a_usage_error(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> None:
    engine = build_engine(scripted_tokenizer)
    model = build_model(scripted_directory, scripted_tokenizer)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ServerOptions(port=taken.getsockname()[1])
        with pytest.raises(UsageError, match="port"):
            serve(engine, model, options)
    engine.shutdown()
