"""Requests that fail alone while the engine goes on."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from llmpack.runtime.chat_template import ChatTemplate
from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch
from llmpack.runtime.tokenizer import Tokenizer
from tests.server.conftest import Running, Start, running
from tests.server.scripted import SCRIPT, build_engine, build_model

BODY = {"model": "m", "prompt": "say go", "temperature": 0, "max_tokens": 50}
CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 50}


def break_model(server: Running) -> None:
    """Makes the logits of every later decode no numbers."""
    runner = server.engine.engine._runner
    decode = runner.decode

    def decode_badly(batch: DecodeBatch) -> Logits:
        return np.full_like(decode(batch), np.nan)

    runner.decode = decode_badly  # type: ignore[method-assign]


@pytest.mark.parametrize("stream", [False, True])
def test_logits_that_are_no_numbers_are_the_servers_fault(start: Start, stream: bool) -> None:
    server = start()
    assert server.client.post("/v1/completions", json=BODY).json()["choices"][0]["text"] == SCRIPT
    break_model(server)
    response = server.client.post("/v1/completions", json=BODY | {"stream": stream})
    if stream:
        first, error, done, _ = response.text.split("\n\n")
        assert json.loads(first.removeprefix("data: "))["choices"][0]["text"] == SCRIPT[0]
        assert done == "data: [DONE]"
    else:
        assert response.status_code == 500
        error = "data: " + response.text
    told = json.loads(error.removeprefix("data: "))["error"]
    assert (told["type"], told["param"], told["code"]) == ("server_error", None, "generation_failed")
    assert "not finite" in told["message"]
    assert server.client.post("/v1/completions", json=BODY | {"max_tokens": 1}).status_code == 200
    assert server.client.get("/health").status_code == 200


def test_a_template_that_never_ends_holds_up_nobody(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> None:
    source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    plain = build_model(scripted_directory, scripted_tokenizer)
    model = replace(plain, chat_template=ChatTemplate({"default": source}, {}, time_limit_s=2.0))
    with running(build_engine(scripted_tokenizer), model) as server, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(server.client.post, "/v1/chat/completions", json=CHAT_BODY) for _ in range(3)]
        time.sleep(0.2)
        began_s = time.monotonic()
        assert server.client.get("/health").status_code == 200
        assert time.monotonic() - began_s < 1.5
        for response in (future.result() for future in asked):
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "chat_template_error"
            assert "took too long" in response.json()["error"]["message"]


def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(client: httpx.Client) -> None:
    text = "go " * 1_000_000
    began_s = time.monotonic()
    for path, fields, param in (
        ("/v1/completions", BODY | {"prompt": text}, "prompt"),
        ("/v1/chat/completions", CHAT_BODY | {"messages": [{"role": "user", "content": text}]}, "messages"),
    ):
        error = refusal(client, path, fields)
        assert (error["param"], error["code"]) == (param, "context_length_exceeded")
        assert "512 tokens" in error["message"]
    assert time.monotonic() - began_s < 5.0
    cut = BODY | {"prompt": text[:90_000] + " go", "truncate_prompt_tokens": 4}
    assert client.post("/v1/completions", json=cut).json()["choices"][0]["text"] == SCRIPT


def refusal(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 400
    return dict(response.json()["error"])


def test_a_request_that_forbids_every_token_is_its_own_fault(
    client: httpx.Client, scripted_tokenizer: Tokenizer
) -> None:
    every_id = list(range(scripted_tokenizer.vocab_size))
    for fields, param in (
        ({"allowed_token_ids": [0], "min_tokens": 1}, "allowed_token_ids"),
        ({"stop_token_ids": every_id, "min_tokens": 1}, "min_tokens"),
    ):
        for path, body in (("/v1/completions", BODY), ("/v1/chat/completions", CHAT_BODY)):
            error = refusal(client, path, body | fields)
            assert (error["type"], error["param"], error["code"]) == (
                "invalid_request_error", param, "generation_failed",
            )  # fmt: skip
            assert "no token is left" in error["message"]
    assert client.post("/v1/completions", json=BODY).json()["choices"][0]["text"] == SCRIPT
