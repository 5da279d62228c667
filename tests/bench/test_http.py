"""The HTTP client and the load on a small server that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from llmpack.bench.http_connection import Origin
from llmpack.bench.http_load import Event, HttpLoad, HttpRequest, OpenAICompletions, find_model
from llmpack.bench.triton_dialects import TritonBatch, TritonStream
from llmpack.errors import BenchError

Answer = Callable[[dict[str, Any]], tuple[int, list[bytes]]]


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[Origin, list[dict[str, Any]]]]:
    """A server that answers bodies by `answer`, in chunks; and the bodies that it got."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            bodies.append({**body, "authorization": self.headers["Authorization"]})
            self.reply(body)

        def reply(self, body: dict[str, Any]) -> None:
            status, chunks = answer(body)
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in [*chunks, b""]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Origin.parse(f"http://127.0.0.1:{server.server_port}/v1/"), bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def stream(num_tokens: int) -> list[bytes]:
    """A completion stream, cut where a network might cut it."""
    events = [{"choices": [{"text": "a"}]}] * num_tokens + [
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": num_tokens}}
    ]
    text = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    return [text[start : start + 17] for start in range(0, len(text), 17)]


def test_a_load_on_a_server() -> None:
    with answering(lambda body: (200, stream(body["max_tokens"]))) as (origin, bodies):
        load = HttpLoad(origin, OpenAICompletions("m"), {"Authorization": "Bearer key"})
        measured = load.run([HttpRequest((1, 2, 3), 3, count) for count in (4, 1, 2)], concurrency=2)
    assert [each.num_output_tokens for each in measured.requests] == [4, 1, 2]
    assert [len(each.arrivals_s) for each in measured.requests] == [4, 1, 2]
    assert measured.num_prompt_tokens == 9
    assert {body["authorization"] for body in bodies} == {"Bearer key"}
    assert bodies[0] | {"max_tokens": 0} == {
        "model": "m", "prompt": [1, 2, 3], "max_tokens": 0, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}, "authorization": "Bearer key",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "chunks", "message"),
    [
        (404, [b'{"error": "no such model"}'], "status 404.*no such model"),
        (200, [b'data: {"error": {"message": "out of memory"}}\n\n'], "error in the stream.*out of memory"),
        (200, [b"data: nonsense\n\n"], "not JSON.*nonsense"),
        (200, [b'data: {"choices": [{"text": "a"}]}\n\n'], "does not count its tokens"),
    ],
)
def test_what_a_server_may_do_wrong(status: int, chunks: list[bytes], message: str) -> None:
    with answering(lambda _: (status, chunks)) as (origin, _), pytest.raises(BenchError, match=message):
        HttpLoad(origin, OpenAICompletions("m"), {}).run([HttpRequest((1,), 1, 1)] * 2, 2)


def test_a_server_that_is_not_there() -> None:
    with answering(lambda _: (200, [])) as (origin, _):
        pass
    with pytest.raises(BenchError, match="cannot connect"):
        HttpLoad(origin, OpenAICompletions("m"), {}).run([HttpRequest((1,), 1, 1)], 1)


def test_a_connection_that_ends_in_the_middle() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # a close with unread data would be a reset
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: 1")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(drop, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            load = HttpLoad(Origin.parse(f"http://127.0.0.1:{port}"), OpenAICompletions("m"), {})
            await asyncio.to_thread(load.run, [HttpRequest((1,), 1, 1)], 1)

    with pytest.raises(BenchError, match="in the middle of an answer"):
        asyncio.run(run())


def test_the_first_listed_model() -> None:
    with answering(lambda _: (200, [b'{"data": [{"id": "first"}, {"id": "second"}]}'])) as (origin, _):
        assert find_model(origin, {}) == "first"
    with answering(lambda _: (200, [b'{"data": []}'])) as (origin, _), pytest.raises(BenchError, match="no model"):
        find_model(origin, {})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:8000", ("http://host:8000", "host", 8000, False)),
        ("http://host/v1", ("http://host", "host", 80, False)),
        ("https://host", ("https://host", "host", 443, True)),
        ("http://[::1]:7", ("http://[::1]:7", "::1", 7, False)),
    ],
)
def test_urls(url: str, expected: tuple[str, str, int, bool]) -> None:
    origin = Origin.parse(url)
    assert (origin.url, origin.host, origin.port, origin.is_tls) == expected


@pytest.mark.parametrize(
    "url", ["host:8000", "ftp://host", "http://", "http://host/v2", "http://host:99999", "http://h?a=1"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(BenchError, match="--against"):
        Origin.parse(url)


def test_triton_counts_each_response() -> None:
    dialect, request = TritonStream("m"), HttpRequest("text", 2, 5)
    assert dialect.path == "/v2/models/m/generate_stream"
    assert json.loads(dialect.body(request)["sampling_parameters"]) == {
        "temperature": 0, "max_tokens": 5, "ignore_eos": True,
    }  # fmt: skip
    data = b'{"text_output": "a", "num_input_tokens": 2, "num_output_tokens": 2}'
    event = dialect.read(data)
    assert event == Event(True, 2, 2)
    assert dialect.count(request, [event, event]) == 4


def test_triton_answers_at_once() -> None:
    dialect, request = TritonBatch("m"), HttpRequest("text", 2, 5)
    event = dialect.read(b'{"generated_text": "abc"}')
    assert event is not None
    assert dialect.count(request, [event]) == 5
    assert dialect.count(request, []) is None
    with pytest.raises(BenchError, match="error in the stream"):
        dialect.read(b'{"error": "no"}')
