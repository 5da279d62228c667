"""OpenAI's own client, synchronous and not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from tests.server.conftest import Running
from tests.server.scripted import NAME, SCRIPT

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def sdk(shared_server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=shared_server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [NAME, "m"]
    assert sdk.models.retrieve("m").owned_by == "llmpack"


def test_chat(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model="m", messages=MESSAGES, temperature=0, logprobs=True, top_logprobs=1)
    assert answer.choices[0].message.content == SCRIPT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 13


def test_chat_stream(sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="m", messages=MESSAGES, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == SCRIPT
    assert chunks[-1].usage is not None


def test_chat_stream_helper(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model="m", messages=MESSAGES, temperature=0) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert answer.choices[0].message.content == SCRIPT


def test_completions(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="m", prompt=["a go", "b go"], temperature=0, max_tokens=2, logprobs=1)
    assert [choice.text for choice in answer.choices] == [": one"] * 2
    pieces = sdk.completions.create(model="m", prompt="a go", temperature=0, max_tokens=50, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == SCRIPT


def test_errors_become_the_exceptions_of_the_client(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="nope", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model="m", messages=MESSAGES, temperature=9)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.APIError, match="no token is left"):
        list(
            sdk.completions.create(
                model="m", prompt="a", stream=True, extra_body={"allowed_token_ids": [0], "min_tokens": 1}
            )
        )


def test_many_at_once(shared_server: Running) -> None:
    async def ask(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=shared_server.url + "/v1", api_key="none") as client:
            return await asyncio.gather(*(ask(client) for _ in range(24)))

    assert asyncio.run(ask_all()) == [SCRIPT] * 24
