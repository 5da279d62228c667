"""Many clients, clients that leave, and more clients than there is room for."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.conftest import Running, Start
from tests.server.scripted import SCRIPT

LONG = {"model": "m", "prompt": "x go", "max_tokens": 450, "ignore_eos": True}


def send(url: str, body: dict[str, Any], path: str = "/v1/completions") -> socket.socket:
    """Sends a request and leaves the connection open, unread."""
    payload = json.dumps(body).encode()
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port), timeout=10)
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return connection


def wait_for_load(server: Running, running: int, waiting: int, timeout_s: float = 2.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while True:
        load = server.gauge("vllm:num_requests_running"), server.gauge("vllm:num_requests_waiting")
        if load == (running, waiting):
            return
        assert time.monotonic() < deadline_s, load
        time.sleep(0.01)


def test_texts_under_load_are_the_texts_alone(shared_server: Running) -> None:
    bodies = [
        {"model": "m", "prompt": f"{number} one", "max_tokens": 5 + number, "temperature": 1.2, "seed": number}
        for number in range(24)
    ]

    async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> str:
        answer = await client.post("/v1/completions", json=body, timeout=30)
        return str(answer.json()["choices"][0]["text"])

    async def ask_all(at_once: bool) -> list[str]:
        async with httpx.AsyncClient(base_url=shared_server.url) as client:
            if at_once:
                return await asyncio.gather(*(ask(client, body) for body in bodies))
            return [await ask(client, body) for body in bodies]

    assert asyncio.run(ask_all(True)) == asyncio.run(ask_all(False))


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_free_their_slots_and_their_places_in_the_queue(start: Start, stream: bool) -> None:
    server = start(step_time_s=0.01)
    connections = [send(server.url, LONG | {"stream": stream}) for _ in range(8)]
    wait_for_load(server, 4, 4)
    for connection in connections:
        connection.close()
    wait_for_load(server, 0, 0, timeout_s=1.0)
    body = {"model": "m", "prompt": "say go", "max_tokens": 50, "temperature": 0}
    assert server.client.post("/v1/completions", json=body).json()["choices"][0]["text"] == SCRIPT
    if not stream:
        assert 'status="499"} 8.0' in server.client.get("/metrics").text


def test_a_full_queue_is_answered_at_once_while_health_stays_quick(start: Start) -> None:
    server = start(step_time_s=0.02, max_waiting=2)
    connections = [send(server.url, LONG) for _ in range(6)]
    wait_for_load(server, 4, 2)
    began_s = time.monotonic()
    for path, body in (
        ("/v1/completions", LONG),
        ("/v1/completions", LONG | {"stream": True}),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ):
        response = server.client.post(path, json=body)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_overloaded")
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/metrics").status_code == 200
    assert time.monotonic() - began_s < 5.0
    assert server.gauge("llmpack:admission_rejections_total") == 3
    for connection in connections:
        connection.close()
    wait_for_load(server, 0, 0)


def test_more_choices_than_could_ever_be_held_are_refused_before_they_are_built(start: Start) -> None:
    server = start(max_waiting=8)
    body = {"model": "m", "prompt": ["a go"] * 1024, "n": 128}
    began_s = time.monotonic()
    response = server.client.post("/v1/completions", json=body)
    assert time.monotonic() - began_s < 5.0
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "n"
    assert "at most 12" in response.json()["error"]["message"]


def test_a_reader_that_stops_reading_holds_up_nobody(start: Start) -> None:
    server = start()
    bodies = [LONG | {"stream": True, "n": 4, "logprobs": 20} for _ in range(2)]
    connections = [send(server.url, body) for body in bodies]
    body = {"model": "m", "prompt": "say go", "max_tokens": 50, "temperature": 0}
    assert server.client.post("/v1/completions", json=body).json()["choices"][0]["text"] == SCRIPT
    for connection in connections:
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(1 << 20)
        assert b"data: [DONE]" in received
        connection.close()


def test_a_connection_serves_many_requests(shared_server: Running) -> None:
    with httpx.Client(base_url=shared_server.url, limits=httpx.Limits(max_connections=1)) as client:
        body = {"model": "m", "prompt": "say go", "max_tokens": 2}
        ports = set()
        for number in range(60):
            response = client.post("/v1/completions", json=body | {"stream": number % 3 == 0})
            assert response.status_code == 200
            ports.add(response.extensions["network_stream"].get_extra_info("client_addr")[1])
        assert len(ports) == 1


def test_idle_connections_outlive_those_of_proxies(shared_server: Running) -> None:
    assert shared_server.server.config.timeout_keep_alive >= 75
