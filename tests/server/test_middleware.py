"""Keys, browsers, limits and counters."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from llmpack.errors import UsageError
from llmpack.server.options import ServerOptions, read_api_keys
from tests.server.conftest import Running, Start

ROUTES = [
    ("GET", "/v1/models"), ("GET", "/v1/models/m"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/tokenizer_info"), ("GET", "/openapi.json"),
    ("GET", "//v1/models"), ("GET", "/v1//models"), ("GET", "/V1/models"),
    ("GET", "/health/"), ("GET", "/nope"),
]  # fmt: skip


@pytest.fixture
def guarded(start: Start) -> Running:
    return start(ServerOptions(port=0, api_keys=("alpha", "bêta"), allowed_origins=("https://good.example",)))


def test_every_route_but_the_probes_needs_a_key(guarded: Running) -> None:
    for method, path in ROUTES:
        response = guarded.client.request(method, guarded.url + path, json={} if method == "POST" else None)
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    for path in ("/health", "/ping", "/version", "/metrics"):
        assert guarded.client.get(path).status_code == 200


@pytest.mark.parametrize("header", ["Bearer alpha", "bearer alpha", "BEARER   alpha", "Bearer bêta"])
def test_any_key_opens(guarded: Running, header: str) -> None:
    assert guarded.client.get("/v1/models", headers=[(b"Authorization", header.encode())]).status_code == 200


@pytest.mark.parametrize("header", ["alpha", "Basic alpha", "Bearer", "Bearer alph", "Bearer alphaa"])
def test_other_keys_do_not(guarded: Running, header: str) -> None:
    assert guarded.client.get("/v1/models", headers={"Authorization": header}).status_code == 401


def test_keys_come_from_options_or_else_from_the_environment() -> None:
    assert read_api_keys(["a"], {"LLMPACK_API_KEY": "b"}) == ("a",)
    assert read_api_keys([], {"LLMPACK_API_KEY": "b, c,"}) == ("b", "c")
    assert read_api_keys([], {}) == ()
    with pytest.raises(UsageError, match="empty"):
        ServerOptions(api_keys=("a", " "))


def test_metrics_can_be_protected(start: Start) -> None:
    server = start(ServerOptions(port=0, api_keys=("k",), protect_metrics=True))
    assert server.client.get("/metrics").status_code == 401


def test_a_preflight_needs_no_key_and_a_refusal_carries_cors_headers(guarded: Running) -> None:
    asking = {
        "Origin": "https://good.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    preflight = guarded.client.options("/v1/chat/completions", headers=asking)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://good.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    refused = guarded.client.post("/v1/chat/completions", json={}, headers={"Origin": "https://good.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://good.example"


def test_a_foreign_origin_is_refused(guarded: Running) -> None:
    asking = {"Origin": "https://bad.example", "Access-Control-Request-Method": "POST"}
    preflight = guarded.client.options("/v1/chat/completions", headers=asking)
    assert preflight.status_code == 400
    assert preflight.json()["error"]["code"] == "cors_refused"
    assert "access-control-allow-origin" not in preflight.headers
    plain = guarded.client.get("/health", headers={"Origin": "https://bad.example"})
    assert "access-control-allow-origin" not in plain.headers


def test_no_origin_is_allowed_by_default(client: httpx.Client) -> None:
    asking = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    assert client.options("/v1/chat/completions", headers=asking).status_code == 400


def test_long_bodies_are_refused_before_and_while_they_are_read(start: Start) -> None:
    server = start(ServerOptions(port=0, max_body_bytes=1000))
    long = b'{"model":"' + b"x" * 1000 + b'"}'
    chunked = (long[at : at + 100] for at in range(0, len(long), 100))
    for content in (long, chunked):
        response = server.client.post("/v1/completions", content=content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"
    exact = b'{"model":"' + b"x" * 988 + b'"}'
    assert len(exact) == 1000
    assert server.client.post("/v1/completions", content=exact).status_code == 400


def test_a_length_that_is_announced_is_refused_without_the_body(shared_server: Running) -> None:
    address = urlsplit(shared_server.url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_expect_continue_is_answered(shared_server: Running) -> None:
    address = urlsplit(shared_server.url)
    body = b'{"model":"m","prompt":"a go","max_tokens":1}'
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode())
        assert connection.recv(25).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert b"HTTP/1.1 200 " in connection.recv(4096)


def test_the_default_model_may_be_left_out_when_the_server_says_so(start: Start) -> None:
    server = start(ServerOptions(port=0, default_model=True))
    answer = server.client.post("/v1/completions", json={"prompt": "a go", "max_tokens": 1}).json()
    assert answer["model"] == "org/scripted"
