"""Public bug reports against other servers, as cases for this one.

Everything that uses `base_url` alone runs against any server whose greedy continuation of a prompt (and of a rendered
chat) that ends in " go" is `: one, two STOP here😀 café END` and then EOS: on paper and over compiled artifacts of
several widths, alone and while others use the server.
The docstrings name the reports.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from llmpack.runtime.chat_template import ChatTemplate
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.options import ServerOptions
from tests.server.background import NUM_CLIENTS
from tests.server.conftest import Setup, Start, running
from tests.server.scripted import SCRIPT, build_engine, build_model

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
STORIES = Path(__file__).parents[1] / "data" / "stories260K"


@pytest.fixture(scope="module")
def http(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def model(http: httpx.Client) -> dict[str, Any]:
    """The served model's entry in /v1/models."""
    return dict(http.get("/v1/models").json()["data"][0])


def body_of(route: str, model: dict[str, Any], **fields: Any) -> dict[str, Any]:
    prompt: dict[str, Any] = {"prompt": "say go"}
    if route == CHAT:
        prompt = {"messages": [{"role": "user", "content": "hi"}]}
    return {"model": model["id"], "temperature": 0, "max_tokens": 50} | prompt | fields


def ask(http: httpx.Client, route: str, model: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = http.post(route, json=body_of(route, model, **fields))
    assert response.status_code == 200, response.text
    choice = dict(response.json()["choices"][0])
    return choice | {"text": text_of(choice), "usage": response.json()["usage"]}


def text_of(choice: dict[str, Any]) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def stream(http: httpx.Client, route: str, model: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    response = http.post(route, json=body_of(route, model, stream=True, **fields))
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def streamed_text(chunks: list[dict[str, Any]]) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in choices)


def refusal(http: httpx.Client, route: str, model: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = http.post(route, json=body_of(route, model, **fields))
    assert response.status_code == 400, response.text
    return dict(response.json()["error"])


def ids_of(http: httpx.Client, text: str) -> list[int]:
    return list(http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"])


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT])
def test_o1_no_piece_of_a_stop_string_is_ever_sent(http: httpx.Client, model: dict[str, Any], route: str) -> None:
    """vllm 3574, 2577."""
    stop = ["two STOP here"]
    chunks = stream(http, route, model, stop=stop)
    assert streamed_text(chunks) == ": one, " == ask(http, route, model, stop=stop)["text"]


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT])
def test_o2_a_stop_string_is_cut_off_and_the_reason_is_stop(
    http: httpx.Client, model: dict[str, Any], route: str
) -> None:
    """text-generation-inference 1724."""
    choice = ask(http, route, model, stop=[","])
    assert (choice["text"], choice["finish_reason"]) == (": one", "stop")


def test_o3_stop_strings_are_matched_on_text_not_on_tokens(http: httpx.Client, model: dict[str, Any]) -> None:
    """lmdeploy 1731."""
    choice = ask(http, COMPLETIONS, model, stop=["wo ST"])
    assert (choice["text"], choice["finish_reason"]) == (": one, t", "stop")
    assert choice["usage"]["completion_tokens"] == 5


def test_o4_bytes_in_impossible_orders_decode_as_the_tokenizer_does(http: httpx.Client, model: dict[str, Any]) -> None:
    """vllm 17448, 19449, 24159."""
    body = {"prompt": "\U0001f600\U0001f9ff\u0915", "add_special_tokens": False, "return_token_strs": True}
    answer = http.post("/tokenize", json=body).json()
    pairs = zip(answer["tokens"], answer["token_strs"], strict=True)
    byte_ids = sorted({token_id for token_id, text in pairs if text.startswith("bytes:")})
    assert len(byte_ids) >= 3
    for seed in range(50):
        fields = {"allowed_token_ids": byte_ids, "temperature": 1, "seed": seed, "max_tokens": 64}
        choice = ask(http, COMPLETIONS, model, return_token_ids=True, ignore_eos=True, **fields)
        expected = http.post("/detokenize", json={"tokens": choice["token_ids"]}).json()["prompt"]
        assert choice["text"] == expected
    assert ask(http, COMPLETIONS, model)["text"] == SCRIPT


def test_o5_a_template_that_writes_bos_gets_no_second_one(scripted_directory: Path) -> None:
    """vllm 27486, 16976, 2012."""
    tokenizer = Tokenizer.from_directory(STORIES)
    engine_of_scripted = build_engine(Tokenizer.from_directory(scripted_directory))
    bos = tokenizer.bos_token_id
    template = ChatTemplate({"default": "{{ bos_token }}{{ messages[0].content }}"}, tokenizer.named_tokens)
    model = replace(
        build_model(scripted_directory, tokenizer), chat_template=template, limits=replace(
            build_model(scripted_directory, tokenizer).limits, vocab_size=tokenizer.vocab_size
        )
    )  # fmt: skip
    with running(engine_of_scripted, model) as server:
        messages = [{"role": "user", "content": "Once upon"}]
        by_chat = server.client.post("/tokenize", json={"messages": messages}).json()["tokens"]
        by_prompt = server.client.post("/tokenize", json={"prompt": "Once upon"}).json()["tokens"]
        bare = server.client.post("/tokenize", json={"prompt": "Once upon", "add_special_tokens": False}).json()
        assert by_chat.count(bos) == by_prompt.count(bos) == 1
        assert by_chat[0] == by_prompt[0] == bos
        assert bos not in bare["tokens"]


def test_o6_every_eos_id_of_the_model_stops(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> None:
    """vllm 4180, 4182."""
    (here,) = scripted_tokenizer.encode(" here", add_special_tokens=False)
    plain = build_model(scripted_directory, scripted_tokenizer)
    limits = replace(plain.limits, eos_token_ids=plain.limits.eos_token_ids | {here})
    with running(build_engine(scripted_tokenizer), replace(plain, limits=limits)) as server:
        entry = {"id": "m"}
        choice = ask(server.client, COMPLETIONS, entry)
        assert (choice["text"], choice["finish_reason"]) == (": one, two STOP", "stop")
        assert "stop_reason" not in choice
        assert ask(server.client, COMPLETIONS, entry, ignore_eos=True, max_tokens=12)["text"] == SCRIPT


def test_o7_a_prompt_is_scored_without_generating(http: httpx.Client, model: dict[str, Any]) -> None:
    """vllm 6521."""
    choice = ask(http, COMPLETIONS, model, prompt="a b c", max_tokens=0, echo=True, logprobs=1)
    assert choice["text"] == "a b c"
    assert choice["usage"]["completion_tokens"] == 0
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"][1:])
    assert len(choice["logprobs"]["tokens"]) == choice["usage"]["prompt_tokens"]


def test_o8_an_empty_prompt_hurts_nobody(http: httpx.Client, model: dict[str, Any]) -> None:
    """vllm 7283, 7632, 7746."""
    adds_bos = bool(http.post("/tokenize", json={"prompt": ""}).json()["tokens"])
    for prompt in ("", [""]):
        status = http.post(COMPLETIONS, json=body_of(COMPLETIONS, model, prompt=prompt)).status_code
        assert status == (200 if adds_bos else 400)
    for nothing in ([], [[]]):
        assert refusal(http, COMPLETIONS, model, prompt=nothing)["param"] == "prompt"
    assert ask(http, COMPLETIONS, model)["text"] == SCRIPT


@pytest.mark.parametrize("bias", [{"99999999": 1}, {"-1": 1}, {"abc": 1}, {"5": 1e9}])
def test_o9_a_bias_that_cannot_be_is_refused(http: httpx.Client, model: dict[str, Any], bias: dict[str, float]) -> None:
    """vllm 6866, 16529."""
    assert refusal(http, COMPLETIONS, model, logit_bias=bias)["param"] == "logit_bias"
    assert ask(http, COMPLETIONS, model)["text"] == SCRIPT


def test_o10_the_message_about_the_context_has_the_true_numbers(http: httpx.Client, model: dict[str, Any]) -> None:
    """vllm 33418."""
    limit = model["max_model_len"]
    prompt = ids_of(http, " one") * (limit - 12)
    error = refusal(http, COMPLETIONS, model, prompt=prompt, max_tokens=limit + 88)
    assert error["code"] == "context_length_exceeded"
    for number in (limit, limit - 12, limit + 88):
        assert str(number) in error["message"]


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT])
def test_o11_every_chunk_says_whether_it_is_the_last(http: httpx.Client, model: dict[str, Any], route: str) -> None:
    """vllm 27572, 19650."""
    choices = [choice for chunk in stream(http, route, model) for choice in chunk["choices"]]
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_o12_o19_tools_are_refused_by_name(http: httpx.Client, model: dict[str, Any], field: str, value: Any) -> None:
    """vllm 44098; model_server 3927, sglang 2877."""
    error = refusal(http, CHAT, model, **{field: value})
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize("raw", ["[1,2]", '"x"', "null", "3"])
def test_o13_json_that_is_no_object_is_a_bad_request(http: httpx.Client, route: str, raw: str) -> None:
    """vllm 42961, 51654."""
    response = http.post(route, content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("field", ["guided_regex", "guided_json", "guided_choice", "guided_grammar"])
def test_o14_a_constraint_is_never_dropped(http: httpx.Client, model: dict[str, Any], field: str) -> None:
    """vllm 53975."""
    error = refusal(http, COMPLETIONS, model, **{field: "[0-9]{3}"})
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


def test_o15_a_preflight_needs_no_key(start: Start) -> None:
    """vllm 4862; sonar 434; llama.cpp 6544."""
    origin = {"Origin": "https://app.example"}
    client = start(ServerOptions(port=0, api_keys=("k",), allowed_origins=("*",))).client
    asking = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = client.options(CHAT, headers=asking)
    assert preflight.status_code in {200, 204}
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    refused = client.post(CHAT, json={}, headers=origin)
    assert refused.status_code == 401
    assert "access-control-allow-origin" in refused.headers


def test_o16_no_route_that_works_is_open(start: Start) -> None:
    """vllm 18892, 18893, 58028."""
    server = start(ServerOptions(port=0, api_keys=("k",)))
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        assert server.client.post(path, json={}).status_code == 401
    for path in ("/v1/models", "/v1//models", "//v1/models", "/V1/models"):
        assert server.client.get(server.url + path).status_code == 401
    for path in ("/health", "/ping"):
        assert server.client.get(path).status_code == 200


def test_o17_requests_of_clients_that_left_are_dropped(http: httpx.Client, model: dict[str, Any], setup: Setup) -> None:
    """llama.cpp 11720, 13262, 24496."""
    address = urlsplit(str(http.base_url))
    body = body_of(COMPLETIONS, model, max_tokens=model["max_model_len"] - 16, ignore_eos=True)
    payload = json.dumps(body).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
    connections = [socket.create_connection((address.hostname, address.port), timeout=5) for _ in range(8)]
    for connection in connections:
        connection.sendall(head + payload)
    time.sleep(0.2)
    for connection in connections:
        connection.close()
    time.sleep(1.0)
    lines = http.get("/metrics").text.splitlines()
    gauges = [line for line in lines if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting"))]
    assert len(gauges) == 2
    assert sum(float(line.rsplit(" ", 1)[1]) for line in gauges) <= NUM_CLIENTS * setup.loaded, gauges
    assert ask(http, COMPLETIONS, model)["text"] == SCRIPT


def test_o18_a_prompt_is_never_cut_unasked(http: httpx.Client, model: dict[str, Any]) -> None:
    """ollama 4967, 17889."""
    limit = model["max_model_len"]
    long = " one" * (2 * limit)
    assert refusal(http, COMPLETIONS, model, prompt=long)["code"] == "context_length_exceeded"
    messages = [{"role": "user", "content": long}]
    error = refusal(http, CHAT, model, messages=messages)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    cut = ask(http, COMPLETIONS, model, prompt=long + " go", truncate_prompt_tokens=8)
    assert (cut["text"], cut["usage"]["prompt_tokens"]) == (SCRIPT, 8)
    assert ask(http, CHAT, model, messages=messages, truncate_prompt_tokens=-1)["text"] == SCRIPT


def test_o20_repetition_counts_the_prompt_and_presence_does_not(http: httpx.Client, model: dict[str, Any]) -> None:
    """vllm 1424, 1577."""
    fields = {"prompt": "Hello one go:", "max_tokens": 1}
    assert ask(http, COMPLETIONS, model, **fields)["text"] == " one"
    assert ask(http, COMPLETIONS, model, **fields, presence_penalty=2)["text"] == " one"
    assert ask(http, COMPLETIONS, model, **fields, repetition_penalty=1000)["text"] != " one"
