"""What comes back when it is not streamed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from llmpack.runtime.tokenizer import Tokenizer
from tests.server.scripted import GO, SCRIPT

NUM_SCRIPT_TOKENS = 13  # EOS included


def complete(client: httpx.Client, prompt: Any = "say go", **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 50} | fields
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def chat(client: httpx.Client, content: str = "hi", **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | fields
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_completion_has_exactly_the_keys_of_openai(client: httpx.Client) -> None:
    answer = complete(client)
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage"]
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["model"] == "m"
    assert answer["choices"] == [{"index": 0, "text": SCRIPT, "logprobs": None, "finish_reason": "stop"}]
    num_prompt = answer["usage"]["prompt_tokens"]
    assert answer["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": NUM_SCRIPT_TOKENS,
        "total_tokens": num_prompt + NUM_SCRIPT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_chat_answer_has_exactly_the_keys_of_openai(client: httpx.Client) -> None:
    answer = chat(client)
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage"]
    assert answer["id"].startswith("chatcmpl-")
    message = {"role": "assistant", "content": SCRIPT, "refusal": None, "annotations": []}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]


def test_max_tokens(client: httpx.Client) -> None:
    assert complete(client, max_tokens=2)["choices"][0] | {"logprobs": None} == {
        "index": 0, "text": ": one", "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert chat(client, max_tokens=9, max_completion_tokens=1)["usage"]["completion_tokens"] == 1
    assert complete(client, max_tokens=None, ignore_eos=True)["usage"]["completion_tokens"] == 16
    limit = 512 - (whole := chat(client, ignore_eos=True))["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == limit


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(client: httpx.Client) -> None:
    answer = complete(client, ["a go", "b one"], n=2, max_tokens=1)
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [
        (0, ":"), (1, ":"), (2, ","), (3, ","),
    ]  # fmt: skip
    assert answer["usage"]["prompt_tokens"] == len("a") + 1 + len("b") + 1
    assert answer["usage"]["completion_tokens"] == 4


def test_more_choices_than_slots_wait_their_turn(client: httpx.Client) -> None:
    answer = complete(client, ["a go"] * 20, n=3, max_tokens=3)
    assert [choice["text"] for choice in answer["choices"]] == [": one,"] * 60


def test_prompts_as_ids(client: httpx.Client, scripted_tokenizer: Tokenizer) -> None:
    ids = scripted_tokenizer.encode("say go", add_special_tokens=False)
    assert complete(client, ids)["choices"] == complete(client)["choices"]
    assert len(complete(client, [ids, ids])["choices"]) == 2


def test_echo(client: httpx.Client, scripted_tokenizer: Tokenizer) -> None:
    assert complete(client, "say go", echo=True)["choices"][0]["text"] == "say go" + SCRIPT
    ids = scripted_tokenizer.encode("say go", add_special_tokens=False)
    assert complete(client, ids, echo=True, max_tokens=1)["choices"][0]["text"] == "say go:"


def test_echo_alone_scores_the_prompt(client: httpx.Client) -> None:
    answer = complete(client, "one go:", echo=True, max_tokens=0, logprobs=1)
    choice = answer["choices"][0]
    assert choice["text"] == "one go:"
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == "one go:"
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][-1] == max(logprobs["top_logprobs"][-1].values())


def test_completion_logprobs_line_up_with_the_text(client: httpx.Client) -> None:
    choice = complete(client, "Hello go", echo=True, logprobs=2)["choices"][0]
    logprobs = choice["logprobs"]
    lengths = {len(values) for values in logprobs.values()}
    assert len(lengths) == 1
    for offset, token in zip(logprobs["text_offset"], logprobs["tokens"], strict=True):
        if not token.startswith(("bytes:", "<|")):
            assert choice["text"][offset:].startswith(token)
    assert r"bytes:\xf0" in logprobs["tokens"]
    for chosen, top in zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:], strict=True):
        assert chosen in top.values()
        assert 2 <= len(top) <= 3


def test_logprobs_of_zero_are_a_request(client: httpx.Client) -> None:
    assert complete(client, logprobs=0, max_tokens=1)["choices"][0]["logprobs"]["top_logprobs"] == [{":": 0.0}]


def test_chat_logprobs_spell_the_content(client: httpx.Client) -> None:
    choice = chat(client, logprobs=True, top_logprobs=2, max_tokens=12)["choices"][0]
    entries = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == choice["message"]["content"] == SCRIPT
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    bare = chat(client, logprobs=True, max_tokens=1)["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in bare] == [[]]


def test_token_ids_on_request(client: httpx.Client, scripted_tokenizer: Tokenizer) -> None:
    ids = scripted_tokenizer.encode("say go", add_special_tokens=False)
    choice = complete(client, return_token_ids=True, max_tokens=1)["choices"][0]
    assert choice["prompt_token_ids"] == ids
    assert choice["token_ids"] == scripted_tokenizer.encode(":", add_special_tokens=False)
    answer = chat(client, return_token_ids=True, max_tokens=1)
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    assert answer["choices"][0]["token_ids"] == choice["token_ids"]
    named = complete(client, logprobs=0, max_tokens=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
    assert named["tokens"] == [f"token_id:{choice['token_ids'][0]}"]


def test_prompt_logprobs(client: httpx.Client) -> None:
    choice = complete(client, "go:", prompt_logprobs=1, max_tokens=1)["choices"][0]
    scored = choice["prompt_logprobs"]
    assert scored[0] is None
    for position in scored[1:]:
        assert 1 <= len(position) <= 2
        assert all(set(entry) == {"logprob", "rank", "decoded_token"} for entry in position.values())
    assert chat(client, prompt_logprobs=0, max_tokens=1)["prompt_logprobs"][0] is None


def test_a_seed_gives_the_same_text_again_and_choices_that_differ(client: httpx.Client) -> None:
    fields = {"temperature": 1.5, "seed": 5, "n": 3, "max_tokens": 12}
    first = complete(client, "x", **fields)
    again = complete(client, "x", **fields)
    texts = [choice["text"] for choice in first["choices"]]
    assert texts == [choice["text"] for choice in again["choices"]]
    assert len(set(texts)) == 3
    assert complete(client, "x", **fields | {"seed": 5.0})["choices"] == first["choices"]
    assert complete(client, "x", **fields | {"seed": 6})["choices"] != first["choices"]


def test_stop_strings_and_reasons(client: httpx.Client) -> None:
    choice = complete(client, stop=["two STOP", "never"])["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (": one, ", "stop", "two STOP")
    kept = complete(client, stop="two STOP", include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == ": one, two STOP"


def test_stop_token_ids(client: httpx.Client, scripted_tokenizer: Tokenizer) -> None:
    (stop_id,) = scripted_tokenizer.encode(" STOP", add_special_tokens=False)
    choice = complete(client, stop_token_ids=[stop_id])["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == (": one, two", stop_id)


def test_truncation_keeps_the_end_of_the_prompt(client: httpx.Client) -> None:
    answer = complete(client, "x" * 2000 + GO, truncate_prompt_tokens=3, echo=True, max_tokens=1)
    assert answer["choices"][0]["text"] == "xx go:"
    assert answer["usage"]["prompt_tokens"] == 3
    fitted = complete(client, "x" * 2000 + GO, truncate_prompt_tokens=-1, max_tokens=12)
    assert fitted["usage"]["prompt_tokens"] == 500
    assert fitted["choices"][0]["text"] == SCRIPT


def test_the_final_message_can_be_continued(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ready go"}]
    fields = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True, "max_tokens": 2}
    assert chat(client, **fields)["choices"][0]["message"]["content"] == ": one"
    assert chat(client, **fields, echo=True)["choices"][0]["message"]["content"] == "ready go: one"


def test_template_variables_and_text_parts(client: httpx.Client) -> None:
    plain = chat(client, "one two")["usage"]["prompt_tokens"]
    parts = [{"type": "text", "text": "one two"}]
    assert chat(client, parts)["usage"]["prompt_tokens"] == plain  # type: ignore[arg-type]
    noted = chat(client, "one two", chat_template_kwargs={"note": " one one"})
    assert noted["usage"]["prompt_tokens"] == plain + 2


def test_earlier_tool_calls_are_shown_to_the_template(client: httpx.Client) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    assert chat(client, messages=messages)["choices"][0]["message"]["content"] == SCRIPT


def test_the_request_id_ends_the_answer_id(client: httpx.Client) -> None:
    assert complete(client, request_id="mine")["id"] == "cmpl-mine"


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
def test_an_alias_is_echoed_as_it_was_asked_for(client: httpx.Client, route: str) -> None:
    for name in ("m", "org/scripted"):
        body = {"model": name, "max_tokens": 1}
        body |= {"prompt": "a"} if route == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
        assert client.post(route, json=body).json()["model"] == name
