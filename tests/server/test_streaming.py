"""Streams, byte for byte and rule by rule."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from llmpack.server.options import ServerOptions
from tests.server.conftest import Running, Start
from tests.server.scripted import SCRIPT

CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "stream": True}
TEXT_BODY = {"model": "m", "prompt": "say go", "max_tokens": 50, "temperature": 0, "stream": True}


def raw_exchange(url: str, path: str, body: dict[str, Any]) -> tuple[bytes, list[bytes]]:
    """The head of the answer and the payloads of its HTTP chunks."""
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n\r\n"
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(head.encode() + payload)
        received = b""
        while data := connection.recv(65536):
            received += data
    top, _, rest = received.partition(b"\r\n\r\n")
    chunks = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        chunk, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if not chunk:
            assert rest == b""
            return top, chunks
        chunks.append(chunk)


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON of all events; the stream must be well-formed and end in [DONE]."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *lines, done, end = response.content.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    assert all(line.startswith(b"data: {") and b"\n" not in line and b"\r" not in line for line in lines)
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def choices(chunks: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]


def joined(lists: Iterable[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def test_a_chat_stream_byte_for_byte(shared_server: Running) -> None:
    body = CHAT_BODY | {"max_tokens": 1, "request_id": "X", "stream_options": {"include_usage": True}}
    top, chunks = raw_exchange(shared_server.url, "/v1/chat/completions", body)
    status, *lines = top.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert status == "HTTP/1.1 200 OK"
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["transfer-encoding"] == "chunked"
    created = re.search(rb'"created":(\d+)', chunks[0])
    assert created is not None
    start = b'data: {"id":"chatcmpl-X","object":"chat.completion.chunk","created":' + created[1] + b',"model":"m",'
    assert chunks == [
        start + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
        b'"finish_reason":null}],"usage":null}\n\n',
        start + b'"choices":[{"index":0,"delta":{"content":":"},"logprobs":null,'
        b'"finish_reason":null}],"usage":null}\n\n',
        start + b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}\n\n',
        start + b'"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n',
        b"data: [DONE]\n\n",
    ]


def test_a_completions_stream_byte_for_byte(shared_server: Running) -> None:
    body = TEXT_BODY | {"max_tokens": 1, "request_id": "X"}
    _, chunks = raw_exchange(shared_server.url, "/v1/completions", body)
    created = re.search(rb'"created":(\d+)', chunks[0])
    assert created is not None
    start = b'data: {"id":"cmpl-X","object":"text_completion","created":' + created[1] + b',"model":"m",'
    assert chunks == [
        start + b'"choices":[{"index":0,"text":":","logprobs":null,"finish_reason":null}]}\n\n',
        start + b'"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}\n\n',
        b"data: [DONE]\n\n",
    ]


@pytest.mark.parametrize("fields", [{}, {"stop": "two STOP"}, {"stop": ["END", "é"]}, {"max_tokens": 8}])
def test_streamed_text_is_the_whole_text(client: httpx.Client, fields: dict[str, Any]) -> None:
    streamed = events(client, "/v1/completions", TEXT_BODY | fields)
    whole = client.post("/v1/completions", json=TEXT_BODY | fields | {"stream": False}).json()["choices"][0]
    assert "".join(choice["text"] for choice in choices(streamed)) == whole["text"]
    assert choices(streamed)[-1]["finish_reason"] == whole["finish_reason"]
    chatted = events(client, "/v1/chat/completions", CHAT_BODY | fields)
    assert "".join(choice["delta"].get("content", "") for choice in choices(chatted)) == whole["text"]


def test_all_chunks_of_an_answer_agree_on_what_it_is(client: httpx.Client) -> None:
    for path, body in (("/v1/completions", TEXT_BODY), ("/v1/chat/completions", CHAT_BODY)):
        chunks = events(client, path, body | {"stream_options": {"include_usage": True}})
        assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1


def test_each_choice_has_one_role_and_one_finish_reason(client: httpx.Client) -> None:
    chunks = events(client, "/v1/chat/completions", CHAT_BODY | {"n": 5})
    for index in range(5):
        pieces = choices(chunks, index)
        assert [piece["delta"].get("role") for piece in pieces] == ["assistant"] + [None] * (len(pieces) - 1)
        assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["stop"]
        assert pieces[-1]["delta"] == {}
        assert "".join(piece["delta"].get("content", "") for piece in pieces) == SCRIPT


def test_streams_of_several_prompts(client: httpx.Client) -> None:
    body = TEXT_BODY | {"prompt": ["a go", "b one", "c two"], "n": 2, "max_tokens": 3, "echo": True}
    chunks = events(client, "/v1/completions", body)
    expected = ["a go: one,", "a go: one,", "b one, two STOP", "b one, two STOP", "c two STOP here\U0001f600"]
    for index, text in enumerate(expected[:4]):
        assert "".join(choice["text"] for choice in choices(chunks, index)) == text
    assert {choice["index"] for chunk in chunks for choice in chunk["choices"]} == set(range(6))


def test_usage_is_sent_once_after_all_finish_reasons_when_asked(client: httpx.Client) -> None:
    body = CHAT_BODY | {"n": 2, "stream_options": {"include_usage": True}}
    *others, last = events(client, "/v1/chat/completions", body)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 26
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)
    assert all("usage" not in chunk for chunk in events(client, "/v1/chat/completions", CHAT_BODY))


def test_continuous_usage_grows_to_the_final_one(client: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(client, "/v1/completions", TEXT_BODY | {"stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 13


def test_streamed_logprobs_are_the_whole_logprobs(client: httpx.Client) -> None:
    fields = {"logprobs": 2, "echo": True, "return_token_ids": True}
    pieces = choices(events(client, "/v1/completions", TEXT_BODY | fields))
    whole = client.post("/v1/completions", json=TEXT_BODY | fields | {"stream": False}).json()["choices"][0]
    for key, values in whole["logprobs"].items():
        assert joined(piece["logprobs"][key] for piece in pieces if piece["logprobs"]) == values
    assert joined(piece.get("token_ids", []) for piece in pieces) == whole["token_ids"]
    assert pieces[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    fields = {"logprobs": True, "top_logprobs": 2}
    pieces = choices(events(client, "/v1/chat/completions", CHAT_BODY | fields))
    whole = client.post("/v1/chat/completions", json=CHAT_BODY | fields | {"stream": False}).json()["choices"][0]
    streamed = joined(piece["logprobs"]["content"] for piece in pieces if piece["logprobs"])
    assert streamed == whole["logprobs"]["content"]


def test_a_refusal_comes_before_the_stream_begins(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=CHAT_BODY | {"max_tokens": 600})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


def test_a_failure_in_the_stream_is_an_event(client: httpx.Client) -> None:
    # The only token that is allowed is EOS, which min_tokens holds off: no token is left.
    body = TEXT_BODY | {"prompt": "a", "allowed_token_ids": [0], "min_tokens": 1}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200
    *_, error, done, end = response.content.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    told = json.loads(error.removeprefix(b"data: "))["error"]
    assert (told["type"], told["param"], told["code"]) == (
        "invalid_request_error", "allowed_token_ids", "generation_failed",
    )  # fmt: skip
    whole = client.post("/v1/completions", json=body | {"stream": False})
    assert (whole.status_code, whole.json()["error"]) == (400, told)
    assert client.get("/health").status_code == 200


def test_comments_keep_a_silent_stream_alive(start: Start) -> None:
    server = start(ServerOptions(port=0, comment_interval_s=0.05), step_time_s=0.2)
    with server.client.stream("POST", "/v1/completions", json=TEXT_BODY | {"max_tokens": 2}) as response:
        content = response.read()
    assert b": keep-alive\n\n" in content
    parts = [part for part in content.split(b"\n\n") if part]
    assert {part[:6] for part in parts} == {b"data: ", b": keep"}
    assert parts[-1] == b"data: [DONE]"
