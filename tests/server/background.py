"""Requests of other clients that go on while a test runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx

NUM_CLIENTS = 3  # one request each, of one sequence


@contextlib.contextmanager
def background_load(url: str, model: str) -> Iterator[None]:
    """Keeps `NUM_CLIENTS` busy clients until the block ends; none of them may be refused."""
    stop = threading.Event()
    failures: list[BaseException] = []
    clients = [threading.Thread(target=_keep_asking, args=(url, model, number, stop, failures))
               for number in range(NUM_CLIENTS)]  # fmt: skip
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join(30)
    assert not failures, failures


def _keep_asking(url: str, model: str, number: int, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        with httpx.Client(base_url=url, timeout=30) as client:
            for turn in count():
                if stop.is_set():
                    return
                _ask(client, _body(model, number + NUM_CLIENTS * turn))
    except BaseException as error:  # told at the end of the block
        failures.append(error)


def _ask(client: httpx.Client, body: dict[str, Any]) -> None:
    """Reads an answer, or leaves in the middle of every fifth stream."""
    with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for _ in response.iter_lines():
            if body["stream"] and body["seed"] % 5 == 0:
                return


def _body(model: str, seed: int) -> dict[str, Any]:
    """Requests of all kinds: short and long, greedy and sampled, with and without log-probabilities."""
    return {
        "model": model,
        "prompt": "one two " * (1 + seed % 37),
        "max_tokens": 1 + seed * 7 % 60,
        "temperature": seed % 3 / 2,
        "seed": seed,
        "logprobs": (None, 0, 3)[seed % 3],
        "repetition_penalty": 1.1 if seed % 4 == 0 else 1.0,
        "stream": seed % 2 == 0,
        "ignore_eos": True,
    }
