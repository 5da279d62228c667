"""Requests that fail alone while the engine goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch
from llmpack.runtime.tokenizer import Tokenizer
from tests.server.conftest import Running, Start
from tests.server.scripted import SCRIPT

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
