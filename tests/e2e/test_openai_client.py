"""OpenAI's own client against a compiled model with known text."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.e2e.conftest import STORIES
from tests.e2e.serving import Served

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e, pytest.mark.server]

GREEDY: dict[str, Any] = json.loads((STORIES / "greedy.json").read_text(encoding="utf-8"))
NUM_GREEDY = len(GREEDY["greedy_ids"])
OPENINGS = ("Once upon a time", "Lily had a", "The dog", "One day, Tom", "It was", "A big", "She said", "Mom")


@pytest.fixture
def sdk(served_stories: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served_stories.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def open_async(server: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_greedy_text_is_the_known_text(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(
        model="stories", prompt=[1], temperature=0, max_tokens=NUM_GREEDY, extra_body={"return_token_ids": True}
    )
    assert answer.choices[0].text == GREEDY["text"]
    assert answer.choices[0].token_ids == GREEDY["greedy_ids"]  # type: ignore[attr-defined]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, NUM_GREEDY)


def test_greedy_text_is_the_known_text_when_streamed(served_stories: Served) -> None:
    async def read() -> str:
        async with open_async(served_stories) as client:
            stream = await client.completions.create(
                model="stories", prompt="", temperature=0, max_tokens=NUM_GREEDY, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

    assert asyncio.run(read()) == GREEDY["text"]


def test_a_conversation_that_begins_with_bos_gets_no_second_one(sdk: openai.OpenAI) -> None:
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": OPENINGS[0]}]
    answer = sdk.chat.completions.create(model="stories", messages=messages, temperature=0, max_tokens=20)
    expected = sdk.completions.create(model="stories", prompt=OPENINGS[0], temperature=0, max_tokens=20)
    assert answer.choices[0].message.content == expected.choices[0].text
    assert answer.usage is not None
    assert answer.usage == expected.usage


def test_streams_at_once_are_the_texts_alone(served_stories: Served) -> None:
    bodies = [
        {"prompt": OPENINGS[number % 8], "max_tokens": 20 + 5 * number, "temperature": number % 2, "seed": number}
        for number in range(16)
    ]

    async def ask(client: openai.AsyncOpenAI, body: dict[str, Any]) -> str:
        stream = await client.completions.create(model="stories", stream=True, **body)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all() -> tuple[list[str], list[str]]:
        async with open_async(served_stories) as client:
            together = await asyncio.gather(*(ask(client, body) for body in bodies))
            return together, [await ask(client, body) for body in bodies]

    together, alone = asyncio.run(ask_all())
    assert together == alone
    assert len(set(alone)) == 16


def test_clients_that_leave_free_their_slots(served_stories: Served) -> None:
    num_clients, num_tokens = 40, 250

    async def leave(client: openai.AsyncOpenAI) -> None:
        stream = await client.completions.create(
            model="stories", prompt=[1], max_tokens=num_tokens, stream=True, extra_body={"ignore_eos": True}
        )
        await stream.close()

    async def leave_all() -> None:
        async with open_async(served_stories) as client:
            await asyncio.gather(*(leave(client) for _ in range(num_clients)))

    before = num_generated(served_stories)
    asyncio.run(leave_all())
    deadline_s = time.monotonic() + 3.0
    while served_stories.load() != (0, 0):
        assert time.monotonic() < deadline_s, served_stories.load()
        time.sleep(0.01)
    assert num_generated(served_stories) - before < num_clients * num_tokens / 2


def num_generated(server: Served) -> float:
    lines = httpx.get(server.url + "/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("llmpack:generation_tokens_total{")).rsplit(" ", 1)[1])


def test_logprobs_of_a_prompt_are_those_of_transformers(sdk: openai.OpenAI) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    prompt_ids = [1, *GREEDY["greedy_ids"][:120]]  # four chunks, the last one short
    answer = sdk.completions.create(model="stories", prompt=prompt_ids, max_tokens=0, echo=True, logprobs=5)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    model = AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.tensor([prompt_ids])).logits[0].log_softmax(-1).numpy()
    assert logprobs.token_logprobs[0] is None
    chosen = expected[np.arange(120), prompt_ids[1:]]
    np.testing.assert_allclose(np.array(logprobs.token_logprobs[1:], dtype=float), chosen, rtol=0, atol=1e-4)
    for row, listed in zip(expected, logprobs.top_logprobs[1:], strict=False):
        values = sorted(listed.values(), reverse=True)[:5]
        np.testing.assert_allclose(values, np.sort(row)[:-6:-1], rtol=0, atol=1e-4)
