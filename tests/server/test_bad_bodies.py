"""Bodies that are wrong in exactly one way: the status, the field and the code that the client is told."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import msgspec
import pytest

from llmpack.server.bodies import REFUSED, ChatBody, CompletionBody

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
GOOD: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": "m", "prompt": "say go", "max_tokens": 2, "temperature": 0},
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0},
}
CASES: list[tuple[str, dict[str, Any], int, str | None, str | None]] = [
    # route, what is different (None as a value means null, ... means absent), status, param, code
    (CHAT, {"model": ...}, 400, "model", None),
    (CHAT, {"model": "nope"}, 404, "model", "model_not_found"),
    (CHAT, {"model": 7}, 400, "model", None),
    (CHAT, {"messages": ...}, 400, "messages", None),
    (CHAT, {"messages": []}, 400, "messages", None),
    (CHAT, {"messages": "hi"}, 400, "messages", None),
    (CHAT, {"messages": [{"content": "hi"}]}, 400, "messages[0].role", None),
    (CHAT, {"messages": [{"role": "alien", "content": "hi"}]}, 400, "messages[0].role", None),
    (CHAT, {"messages": [{"role": "user", "content": 7}]}, 400, "messages[0].content", None),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "messages[0].content", None),
    (CHAT, {"messages": [{"role": "user", "content": "a"}, {"role": "user", "contnt": "b"}]}, 400,
     "messages[1].contnt", "unknown_parameter"),
    (CHAT, {"messages": [{"role": "function", "content": "a"}]}, 400, "messages[0].role", "unsupported_parameter"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}, 400,
     "messages[0].content[0].type", "unsupported_content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "messages[0].content[0].text", None),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]}, 400,
     "messages[0].content[0].x", "unknown_parameter"),
    (CHAT, {"max_tokens": 0}, 400, "max_tokens", None),
    (CHAT, {"max_tokens": -1}, 400, "max_tokens", None),
    (CHAT, {"max_tokens": 2.5}, 400, "max_tokens", None),
    (CHAT, {"max_tokens": "2"}, 400, "max_tokens", None),
    (CHAT, {"max_tokens": True}, 400, "max_tokens", None),
    (CHAT, {"max_completion_tokens": 0}, 400, "max_completion_tokens", None),
    (CHAT, {"max_completion_tokens": 600}, 400, "max_completion_tokens", "context_length_exceeded"),
    (CHAT, {"max_tokens": 600}, 400, "max_tokens", "context_length_exceeded"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "messages", "context_length_exceeded"),
    (CHAT, {"temperature": -0.1}, 400, "temperature", None),
    (CHAT, {"temperature": 2.1}, 400, "temperature", None),
    (CHAT, {"temperature": "0"}, 400, "temperature", None),
    (CHAT, {"top_p": 0}, 400, "top_p", None),
    (CHAT, {"top_p": 1.1}, 400, "top_p", None),
    (CHAT, {"top_k": -2}, 400, "top_k", None),
    (CHAT, {"min_p": 1.5}, 400, "min_p", None),
    (CHAT, {"n": 0}, 400, "n", None),
    (CHAT, {"n": 129}, 400, "n", None),
    (CHAT, {"presence_penalty": 2.5}, 400, "presence_penalty", None),
    (CHAT, {"frequency_penalty": -2.5}, 400, "frequency_penalty", None),
    (CHAT, {"repetition_penalty": 0}, 400, "repetition_penalty", None),
    (CHAT, {"min_tokens": 3}, 400, "min_tokens", None),
    (CHAT, {"stop": ""}, 400, "stop", None),
    (CHAT, {"stop": ["a", "b", "c", "d", "e"]}, 400, "stop", None),
    (CHAT, {"stop": [1]}, 400, "stop[0]", None),
    (CHAT, {"stop_token_ids": [99999]}, 400, "stop_token_ids", None),
    (CHAT, {"stop_token_ids": ["1"]}, 400, "stop_token_ids[0]", None),
    (CHAT, {"allowed_token_ids": []}, 400, "allowed_token_ids", None),
    (CHAT, {"logit_bias": {"99999": 1}}, 400, "logit_bias", None),
    (CHAT, {"logit_bias": {"-1": 1}}, 400, "logit_bias", None),
    (CHAT, {"logit_bias": {"abc": 1}}, 400, "logit_bias", None),
    (CHAT, {"logit_bias": {"5": 101}}, 400, "logit_bias", None),
    (CHAT, {"logit_bias": [1]}, 400, "logit_bias", None),
    (CHAT, {"seed": 2**63}, 400, "seed", None),
    (CHAT, {"seed": 1.5}, 400, "seed", None),
    (CHAT, {"top_logprobs": 1}, 400, "top_logprobs", None),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", None),
    (CHAT, {"logprobs": 1}, 400, "logprobs", None),
    (CHAT, {"stream_options": {"include_usage": True}}, 400, "stream_options", None),
    (CHAT, {"stream": True, "stream_options": {"inklude_usage": True}}, 400, "stream_options.inklude_usage",
     "unknown_parameter"),
    (CHAT, {"stream": True, "stream_options": {"include_obfuscation": True}}, 400,
     "stream_options.include_obfuscation", "unsupported_parameter"),
    (CHAT, {"stream": True, "prompt_logprobs": 1}, 400, "prompt_logprobs", None),
    (CHAT, {"stream": "yes"}, 400, "stream", None),
    (CHAT, {"request_id": "a b"}, 400, "request_id", None),
    (CHAT, {"request_id": "a\n"}, 400, "request_id", None),
    (CHAT, {"continue_final_message": True}, 400, "continue_final_message", None),
    (CHAT, {"add_generation_prompt": True, "continue_final_message": True,
            "messages": [{"role": "assistant", "content": "a"}]}, 400, "continue_final_message", None),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs", None),
    (CHAT, {"truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens", None),
    (CHAT, {"truncate_prompt_tokens": 513}, 400, "truncate_prompt_tokens", None),
    (CHAT, {"temprature": 1}, 400, "temprature", "unknown_parameter"),
    (CHAT, {"suffix": "x"}, 400, "suffix", "unknown_parameter"),
    (CHAT, {"metadata": {"a": 1}}, 400, "metadata", None),
    (COMPLETIONS, {"prompt": ...}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": None}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": ["a", [1]]}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": [1, "a"]}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": [True]}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": {"a": 1}}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": [-1]}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": [99999]}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": [2**70], "echo": True}, 400, "prompt", None),
    (COMPLETIONS, {"prompt": ["a"] * 1025}, 400, "prompt", None),
    (COMPLETIONS, {"max_tokens": 0}, 400, "max_tokens", None),
    (COMPLETIONS, {"best_of": 2}, 400, "best_of", "unsupported_parameter"),
    (COMPLETIONS, {"logprobs": True}, 400, "logprobs", None),
    (COMPLETIONS, {"logprobs": 21}, 400, "logprobs", None),
    (COMPLETIONS, {"max_completion_tokens": 5}, 400, "max_completion_tokens", "unknown_parameter"),
    (COMPLETIONS, {"messages": []}, 400, "messages", "unknown_parameter"),
    ("/tokenize", {"prompt": ...}, 400, "prompt", None),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}, 400, "prompt", None),
    ("/tokenize", {"model": "nope"}, 404, "model", "model_not_found"),
    ("/detokenize", {"tokens": ...}, 400, "tokens", None),
    ("/detokenize", {"tokens": [-1]}, 400, "tokens", None),
    ("/detokenize", {"tokens": [99999]}, 400, "tokens", None),
    ("/detokenize", {"tokens": [1.5]}, 400, "tokens[0]", None),
]  # fmt: skip
GOOD |= {"/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [1]}}


def check_error(response: httpx.Response, status: int, param: str | None, code: str | None) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, code), error
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize(("route", "change", "status", "param", "code"), CASES)
def test_a_body_that_is_wrong_in_one_way_is_refused_by_name(
    client: httpx.Client, route: str, change: dict[str, Any], status: int, param: str | None, code: str | None
) -> None:
    body = {key: value for key, value in (GOOD[route] | change).items() if value is not ...}
    check_error(client.post(route, json=body), status, param, code)


@pytest.mark.parametrize("route", GOOD)
def test_the_bodies_that_the_cases_start_from_are_good(client: httpx.Client, route: str) -> None:
    assert client.post(route, json=GOOD[route]).status_code == 200


@pytest.mark.parametrize("route", GOOD)
@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[1,2]", b'"x"', b"null", b"7", b'{"model":"m"} x', b'{"model":"\xff"}', b'{"temperature":NaN}',
        b'{"temperature":Infinity}', b'{"model":"\\ud800"}', b'{"messages":' + b"[" * 100_000, b'{"model":"m",}',
    ],
)  # fmt: skip
def test_bodies_that_are_no_json_object_are_refused(client: httpx.Client, route: str, raw: bytes) -> None:
    response = client.post(route, content=raw)
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_numbers_that_overflow_are_refused(client: httpx.Client) -> None:
    for number in ("1e999", "-1e999"):
        raw = f'{{"model":"m","prompt":"a","temperature":{number}}}'
        assert client.post(COMPLETIONS, content=raw).status_code == 400


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_unsupported_field_is_refused_by_name_and_its_neutral_values_pass(
    client: httpx.Client, name: str
) -> None:
    routes = {CHAT: ChatBody, COMPLETIONS: CompletionBody}
    having = [route for route, kind in routes.items() if name in kind.__struct_fields__]
    assert having
    for route in having:
        refused = client.post(route, json=GOOD[route] | {name: {"what": "ever"}})
        check_error(refused, 400, name, "unsupported_parameter")
        for neutral in (None, *REFUSED[name]):
            response = client.post(route, json=GOOD[route] | {name: neutral})
            assert response.status_code == 200, (name, neutral, response.text)


def test_bookkeeping_fields_change_nothing(client: httpx.Client) -> None:
    extra = {
        "user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "cache_salt": "c", "parallel_tool_calls": True,
    }  # fmt: skip
    plain = client.post(CHAT, json=GOOD[CHAT]).json()
    kept = client.post(CHAT, json=GOOD[CHAT] | extra).json()
    assert kept["choices"] == plain["choices"]
    assert kept.keys() == plain.keys()


def test_the_service_tier_is_answered_only_when_asked(client: httpx.Client) -> None:
    assert "service_tier" not in client.post(CHAT, json=GOOD[CHAT]).json()
    assert client.post(CHAT, json=GOOD[CHAT] | {"service_tier": "auto"}).json()["service_tier"] == "default"


def test_an_unknown_field_names_the_nearest(client: httpx.Client) -> None:
    message = client.post(CHAT, json=GOOD[CHAT] | {"max_token": 1}).json()["error"]["message"]
    assert "max_tokens" in message


@pytest.mark.parametrize(
    ("content_type", "status"),
    [("application/json; charset=utf-8", 200), ("application/vnd.x+json", 200), ("text/plain", 415), ("", 200)],
)
def test_content_types(client: httpx.Client, content_type: str, status: int) -> None:
    raw = msgspec.json.encode(GOOD[CHAT])
    headers = {"content-type": content_type} if content_type else {}
    assert client.post(CHAT, content=raw, headers=headers).status_code == status


def test_null_means_absent_for_every_field(client: httpx.Client) -> None:
    for route, kind in ((CHAT, ChatBody), (COMPLETIONS, CompletionBody)):
        body = dict.fromkeys(kind.__struct_fields__) | GOOD[route]
        assert client.post(route, json=body).status_code == 200


def test_a_template_that_raises_gives_its_own_message(client: httpx.Client, scripted_directory: Any) -> None:
    body = GOOD[CHAT] | {"messages": [{"role": "tool", "content": "poison"}]}
    response = client.post(CHAT, json=body)
    check_error(response, 400, "messages", "chat_template_error")
    assert "no poison" in response.json()["error"]["message"]


def test_a_compressed_body_is_refused_as_such(client: httpx.Client) -> None:
    body = gzip.compress(b'{"model": "m", "prompt": "a go", "max_tokens": 1}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    response = client.post("/v1/completions", content=body, headers=headers)
    assert response.status_code == 415
    assert "gzip" in response.json()["error"]["message"]
    assert response.headers["accept-encoding"] == "identity"
