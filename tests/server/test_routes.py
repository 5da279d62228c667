"""The routes around generation."""

from __future__ import annotations

import httpx
import pytest

from llmpack import __version__
from tests.server.conftest import Running
from tests.server.scripted import GO, NAME, SCRIPT


def test_every_served_name_is_listed_and_found(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [NAME, "m"]
    for model in listed["data"]:
        assert model["object"] == "model"
        assert isinstance(model["created"], int)
        assert model["owned_by"] == "llmpack"
        assert model["max_model_len"] == 512
        assert client.get(f"/v1/models/{model['id']}").json() == model


def test_an_unknown_model_is_not_found(client: httpx.Client) -> None:
    response = client.get("/v1/models/org/other")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_unknown_routes_and_methods_are_error_objects(client: httpx.Client) -> None:
    for path in ("/", "/v1", "/v1/embeddings", "/v1/responses", "//v1/models", "/v1/models/../../x"):
        response = client.get(path)
        assert response.status_code == 404, path
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    response = client.delete("/v1/completions")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["code"] == "method_not_allowed"


def test_health(client: httpx.Client) -> None:
    for method, path in (("GET", "/health"), ("HEAD", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        response = client.request(method, path)
        assert response.status_code == 200
        assert response.content == b""


def test_the_version(client: httpx.Client) -> None:
    assert client.get("/version").json() == {"version": __version__}


def test_tokenize_and_detokenize_are_inverse(client: httpx.Client) -> None:
    answer = client.post("/tokenize", json={"prompt": GO + SCRIPT, "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 512
    assert answer["token_strs"][:3] == [" go", ":", " one"]
    assert client.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": GO + SCRIPT}


def test_tokenize_messages_as_chat_would(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    answer = client.post("/tokenize", json={"messages": messages}).json()
    chat = client.post("/v1/chat/completions", json={"model": "m", "messages": messages, "max_tokens": 1}).json()
    assert answer["count"] == chat["usage"]["prompt_tokens"]
    text = client.post("/detokenize", json={"tokens": answer["tokens"]}).json()["prompt"]
    assert text == "user: Hello\nassistant go"
    without = client.post("/tokenize", json={"messages": messages, "add_generation_prompt": False}).json()
    assert client.post("/detokenize", json={"tokens": without["tokens"]}).json()["prompt"] == "user: Hello"


def test_a_long_prompt_is_tokenized_like_a_short_one(client: httpx.Client) -> None:
    short = client.post("/tokenize", json={"prompt": " one"}).json()["tokens"]
    assert client.post("/tokenize", json={"prompt": " one" * 3000}).json()["tokens"] == short * 3000


def test_tokenizer_info(client: httpx.Client) -> None:
    info = client.get("/tokenizer_info").json()
    assert info["eos_token"] == "<|endoftext|>"
    assert "messages" in info["chat_template"]


def test_the_openapi_document_covers_every_route(client: httpx.Client, shared_server: Running) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) >= {"/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/{model}"}
    fields = document["components"]["schemas"]["ChatBody"]["properties"]
    assert "temperature" in fields
    assert document["components"]["schemas"]["ChatBody"]["additionalProperties"] is False


@pytest.mark.parametrize("given", ["abc-1", "x" * 256])
def test_the_request_id_comes_back(client: httpx.Client, given: str) -> None:
    assert client.get("/health", headers={"X-Request-Id": given}).headers["x-request-id"] == given


def test_a_missing_or_unusable_request_id_is_replaced(client: httpx.Client) -> None:
    made = client.get("/nope").headers["x-request-id"]
    assert len(made) == 32
    assert client.get("/nope", headers={"X-Request-Id": "x" * 257}).headers["x-request-id"] != "x" * 257
