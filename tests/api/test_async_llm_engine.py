from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmpack import AsyncLLMEngine, RequestOutput, RequestOutputKind, SamplingParams
from llmpack.api.prompts import encode_text
from llmpack.errors import ContextLengthExceeded, DuplicateRequest, EngineError, RequestError, UsageError
from llmpack.runtime.tokenizer import Tokenizer
from tests.api.conftest import Build
from tests.server.scripted import SCRIPT

GREEDY = SamplingParams(temperature=0, max_tokens=50)
ENDLESS = SamplingParams(temperature=0, max_tokens=250, ignore_eos=True)
SLOW_STEP_S = 0.005


async def read(engine: AsyncLLMEngine, prompt: Any, params: SamplingParams, request_id: Any) -> list[RequestOutput]:
    return [output async for output in engine.generate(prompt, params, request_id)]


async def last(engine: AsyncLLMEngine, prompt: Any, params: SamplingParams, request_id: Any) -> RequestOutput:
    return (await read(engine, prompt, params, request_id))[-1]


@asynccontextmanager
async def idle_within(engine: AsyncLLMEngine, limit_s: float) -> AsyncIterator[None]:
    """Checks that nothing runs or waits `limit_s` seconds after the block at the latest."""
    yield
    deadline_s = time.monotonic() + limit_s
    while (load := engine._engine.metrics.snapshot()).num_requests_running + load.num_requests_waiting:
        assert time.monotonic() < deadline_s, load
        await asyncio.sleep(0.005)


def test_outputs_grow_and_the_last_one_is_finished(engine: AsyncLLMEngine, tokenizer: Tokenizer) -> None:
    outputs = asyncio.run(read(engine, "say go", GREEDY, "id"))
    texts = [output.outputs[0].text for output in outputs]
    assert texts == sorted(texts, key=len)
    assert texts[-1] == SCRIPT
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].prompt == "say go"
    assert outputs[-1].prompt_token_ids == tokenizer.encode("say go", add_special_tokens=True)
    assert outputs[-1].prompt_logprobs is None
    choice = outputs[-1].outputs[0]
    assert (choice.index, choice.finish_reason, choice.stop_reason) == (0, "stop", None)
    assert (choice.logprobs, choice.cumulative_logprob) == (None, None)
    assert tokenizer.decode(choice.token_ids) == SCRIPT
    assert choice.finished()


def test_earlier_outputs_do_not_change(build: Build) -> None:
    outputs = asyncio.run(read(build(step_time_s=SLOW_STEP_S), "say go", GREEDY, "id"))
    lengths = [len(output.outputs[0].token_ids) for output in outputs]
    assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("num_choices", [1, 3])
def test_deltas_add_up(engine: AsyncLLMEngine, num_choices: int) -> None:
    params = SamplingParams(
        n=num_choices, seed=5, max_tokens=30, logprobs=1, prompt_logprobs=0, output_kind=RequestOutputKind.DELTA
    )
    whole_params = SamplingParams(n=num_choices, seed=5, max_tokens=30, logprobs=1, prompt_logprobs=0)
    deltas = asyncio.run(read(engine, "say so", params, "id"))
    whole = asyncio.run(last(engine, "say so", whole_params, "id"))
    assert deltas[-1].finished
    assert [delta.prompt_logprobs for delta in deltas if delta.prompt_logprobs] == [whole.prompt_logprobs]
    assert len(whole.outputs) == num_choices
    for index, expected in enumerate(whole.outputs):
        own = [choice for delta in deltas for choice in delta.outputs if choice.index == index]
        assert "".join(choice.text for choice in own) == expected.text
        assert [token_id for choice in own for token_id in choice.token_ids] == expected.token_ids
        assert [entry for choice in own for entry in choice.logprobs or ()] == expected.logprobs
        assert own[-1].cumulative_logprob == expected.cumulative_logprob
        assert own[-1].finish_reason == expected.finish_reason


def test_only_the_final_output_when_asked(engine: AsyncLLMEngine) -> None:
    params = SamplingParams(temperature=0, max_tokens=50, n=2, output_kind=RequestOutputKind.FINAL_ONLY)
    outputs = asyncio.run(read(engine, "say go", params, "id"))
    assert len(outputs) == 1
    assert outputs[0].finished
    assert [(choice.index, choice.text) for choice in outputs[0].outputs] == [(0, SCRIPT), (1, SCRIPT)]


def test_logprobs_are_dicts_with_the_chosen_token_first(engine: AsyncLLMEngine, tokenizer: Tokenizer) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, logprobs=2, prompt_logprobs=1)
    output = asyncio.run(last(engine, "say go", params, "id"))
    choice = output.outputs[0]
    assert choice.logprobs is not None
    assert [next(iter(entry)) for entry in choice.logprobs] == choice.token_ids
    for token_id, entry in zip(choice.token_ids, choice.logprobs, strict=True):
        assert len(entry) == 2
        assert entry[token_id].rank == 1
        assert entry[token_id].decoded_token == tokenizer.token_text(token_id)
        assert sorted(entry.values(), key=lambda item: item.rank or 0) == list(entry.values())
    chosen = [entry[token_id].logprob for token_id, entry in zip(choice.token_ids, choice.logprobs, strict=True)]
    assert choice.cumulative_logprob == pytest.approx(sum(chosen))
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    assert all(entry is not None and token_id in entry for token_id, entry
               in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True))  # fmt: skip


def test_every_form_of_a_prompt_gives_the_same(engine: AsyncLLMEngine, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("say go", add_special_tokens=True)
    forms = ["say go", ids, {"prompt": "say go"}, {"prompt_token_ids": ids}, {"prompt_token_ids": ids, "prompt": "x"}]
    outputs = [asyncio.run(last(engine, form, GREEDY, 7)) for form in forms]
    assert [output.outputs[0].text for output in outputs] == [SCRIPT] * 5
    assert [output.prompt for output in outputs] == ["say go", None, "say go", None, "x"]
    assert all(output.prompt_token_ids == ids for output in outputs)


def test_a_long_text_is_encoded_beside_the_loop(engine: AsyncLLMEngine) -> None:
    text = " assistant" * 300 + " go"
    assert asyncio.run(last(engine, text, GREEDY, 7)).outputs[0].text == SCRIPT


def test_a_bos_that_is_spelled_out_is_not_doubled() -> None:
    tokenizer = Tokenizer.from_directory(Path(__file__).parents[1] / "data" / "stories260K")
    plain = encode_text("Once", tokenizer)
    assert plain[0] == tokenizer.bos_token_id
    assert encode_text("<s>Once", tokenizer)[:2] != [tokenizer.bos_token_id] * 2
    assert encode_text("<s><s>Once", tokenizer)[:3].count(1) == 2, "only the one that was added is left out"
    assert tokenizer.encode("<s>Once", add_special_tokens=True)[:2] == [1, 1]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (5, "not a prompt"),
        (b"text", "not a prompt"),
        ([], "not a prompt"),
        ([1, "two"], "not a prompt"),
        ("", "the prompt is empty"),
        ({}, "the prompt is empty"),
        ({"prompt": 5}, "must be a string"),
        ({"prompt_token_ids": []}, "not token ids"),
        ({"prompt_token_ids": [1.5]}, "not token ids"),
        ({"promt": "x"}, "Did you mean prompt?"),
        ({"prompt": "x", "multi_modal_data": {}}, "unknown field"),
        ([10**6], "outside the vocabulary"),
        ("a\ud800", "not valid Unicode"),
    ],
)
def test_bad_prompts_are_refused_and_free_their_id(engine: AsyncLLMEngine, prompt: Any, says: str) -> None:
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            asyncio.run(read(engine, prompt, GREEDY, "id"))
        assert says in str(caught.value)
    assert asyncio.run(last(engine, "say go", GREEDY, "id")).outputs[0].text == SCRIPT


def test_bad_parameters_are_refused(engine: AsyncLLMEngine, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="sampling_params"):
        asyncio.run(read(engine, "x", {"temperature": 0}, "id"))  # type: ignore[arg-type]
    with pytest.raises(ContextLengthExceeded, match="512"):
        asyncio.run(read(engine, "x", SamplingParams(max_tokens=512), "id"))
    none_left = SamplingParams(allowed_token_ids=[tokenizer.id_of("x")], bad_words=["x"])  # type: ignore[list-item]
    with pytest.raises(RequestError) as caught:
        asyncio.run(read(engine, "say go", none_left, "id"))
    assert caught.value.param in {"allowed_token_ids", "bad_words"}


@pytest.mark.parametrize("request_id", [None, 1.5, True, ("a",)])
def test_bad_ids_are_refused(engine: AsyncLLMEngine, request_id: Any) -> None:
    with pytest.raises(RequestError, match="request id"):
        asyncio.run(read(engine, "x", GREEDY, request_id))


def test_ids_keep_their_type_and_must_not_be_live_twice(build: Build) -> None:
    engine = build(step_time_s=SLOW_STEP_S)

    async def main() -> None:
        both = [engine.generate("a b", ENDLESS, request_id) for request_id in (1, "1")]
        first = [await anext(generator) for generator in both]
        assert [output.request_id for output in first] == [1, "1"]
        assert [type(output.request_id) for output in first] == [int, str]
        for request_id in (1, "1"):
            with pytest.raises(DuplicateRequest, match="in use"):
                await anext(engine.generate("x", GREEDY, request_id))
        for generator in both:
            await generator.aclose()
        assert (await last(engine, "say go", GREEDY, 1)).request_id == 1

    asyncio.run(main())


def test_ids_of_choices_do_not_collide(build: Build) -> None:
    engine = build(step_time_s=SLOW_STEP_S)
    two = SamplingParams(temperature=0, max_tokens=50, n=2)

    async def main() -> list[RequestOutput]:
        return await asyncio.gather(*(last(engine, "say go", two, name) for name in ("a", "a-0", "a-1")))

    for output in asyncio.run(main()):
        assert [choice.text for choice in output.outputs] == [SCRIPT, SCRIPT]


def test_an_id_is_free_once_the_finished_output_is_seen(engine: AsyncLLMEngine) -> None:
    async def main() -> None:
        held = []
        for _ in range(3):
            generator = engine.generate("say go", GREEDY, "same")
            held.append(generator)  # not even closed
            async for output in generator:
                if output.finished:
                    break
        for generator in held:
            await generator.aclose()

    asyncio.run(main())


def test_several_event_loops_in_turn_and_at_once(engine: AsyncLLMEngine) -> None:
    texts: list[str] = []

    def client(name: int) -> None:
        texts.append(asyncio.run(last(engine, "say go", GREEDY, name)).outputs[0].text)

    client(1)
    client(1)
    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [SCRIPT] * 8


def test_many_at_once_get_what_they_get_alone(engine: AsyncLLMEngine) -> None:
    jobs = [(f"number {number}", SamplingParams(seed=number, max_tokens=5 + number % 20)) for number in range(100)]

    async def together() -> list[RequestOutput]:
        return await asyncio.gather(*(last(engine, *job, number) for number, job in enumerate(jobs)))

    async def alone() -> list[RequestOutput]:
        return [await last(engine, *job, number) for number, job in enumerate(jobs)]

    assert asyncio.run(together()) == asyncio.run(alone())


@pytest.mark.parametrize("way", ["aclose", "cancel", "break", "loop ends"])
def test_leaving_aborts(build: Build, way: str) -> None:
    engine = build(step_time_s=SLOW_STEP_S)

    async def leave() -> None:
        generator = engine.generate("a b", ENDLESS, "id")
        if way == "break":
            async for _ in generator:
                break
            del generator
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return
        if way == "cancel":
            task = asyncio.create_task(read(engine, "a b", ENDLESS, "other"))
            await asyncio.sleep(0.03)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await anext(generator)
        if way != "loop ends":
            await generator.aclose()

    async def check() -> None:
        async with idle_within(engine, limit_s=1.0):
            pass
        for request_id in ("id", "other"):
            assert (await last(engine, "say go", GREEDY, request_id)).outputs[0].text == SCRIPT

    asyncio.run(leave())
    asyncio.run(check())


@pytest.mark.parametrize("num_choices", [1, 2])
def test_abort_ends_the_generator_with_what_there_is(build: Build, num_choices: int) -> None:
    engine = build(step_time_s=SLOW_STEP_S)
    params = SamplingParams(n=num_choices, temperature=0, max_tokens=400, ignore_eos=True)

    async def main() -> None:
        outputs = []
        async for output in engine.generate("a b", params, 3):
            outputs.append(output)
            if len(outputs) == 5:
                await engine.abort("3")
                await engine.abort("unknown")
            if len(outputs) == 10:
                await engine.abort(3)
                await engine.abort(3)
        assert 10 <= len(outputs) < 30
        assert outputs[-1].finished
        assert {choice.finish_reason for choice in outputs[-1].outputs} == {"abort"}
        assert all(choice.text for choice in outputs[-1].outputs)

    asyncio.run(main())


def test_an_abort_before_the_prompt_is_encoded_counts(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build(step_time_s=SLOW_STEP_S)
    encode = engine.model.tokenizer.encode

    def encode_slowly(text: str, add_special_tokens: bool) -> list[int]:
        time.sleep(0.1)
        return encode(text, add_special_tokens)

    monkeypatch.setattr(engine.model.tokenizer, "encode", encode_slowly)

    async def main() -> RequestOutput:
        task = asyncio.create_task(last(engine, " assistant" * 230 + " or", ENDLESS, "id"))
        await asyncio.sleep(0.02)
        await engine.abort("id")
        return await task

    output = asyncio.run(main())
    assert output.outputs[0].finish_reason == "abort"
    assert len(output.outputs[0].token_ids) < 10


def test_seeds_come_from_the_engines_own(build: Build) -> None:
    async def texts(engine: AsyncLLMEngine, seed: int | None = None) -> list[str]:
        params = SamplingParams(max_tokens=20, seed=seed)
        return [(await last(engine, "so", params, number)).outputs[0].text for number in range(3)]

    one, same, other = (asyncio.run(texts(build(seed=seed))) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert len(set(one)) == 3
    assert len(set(asyncio.run(texts(build(seed=1), seed=9)))) == 1


def test_health_and_shutdown(build: Build) -> None:
    engine = build()

    async def main() -> None:
        await engine.check_health()
        assert (engine.is_running, engine.errored, engine.dead_error) == (True, False, None)
        engine.shutdown()
        engine.shutdown()
        assert (engine.is_running, engine.errored) == (False, False)
        with pytest.raises(EngineError):
            await engine.check_health()
        with pytest.raises(EngineError):
            await read(engine, "x", GREEDY, "id")

    asyncio.run(main())


def test_a_dead_engine_says_so(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build()

    def die(_batch: object) -> None:
        raise RuntimeError("bad memory")

    monkeypatch.setattr(engine._engine.engine._runner, "decode", die)
    with pytest.raises(EngineError, match="bad memory"):
        asyncio.run(read(engine, "say go", GREEDY, "id"))
    assert engine.errored
    assert not engine.is_running
    assert isinstance(engine.dead_error, RuntimeError)


def test_an_engine_that_nobody_holds_stops(build: Build, tokenizer: Tokenizer) -> None:
    held = build()
    inner = held._engine
    engine = AsyncLLMEngine(inner, held.model)
    assert inner.is_running
    del engine
    gc.collect()
    deadline_s = time.monotonic() + 10.0
    while inner.is_running:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_the_tokenizer_has_the_names_of_transformers(engine: AsyncLLMEngine, tokenizer: Tokenizer) -> None:
    async def get() -> Any:
        return await engine.get_tokenizer()

    own = asyncio.run(get())
    ids = own.encode("Hello go")
    assert own.decode(ids) == "Hello go"
    assert own.eos_token_id == own.convert_tokens_to_ids(own.eos_token) == tokenizer.eos_token_id
    assert own.added_tokens_decoder[own.eos_token_id].content == own.eos_token
    assert own.decode(own.eos_token_id) == own.eos_token
    assert own.decode([own.eos_token_id], skip_special_tokens=True) == ""
    assert own.all_special_ids == [own.eos_token_id]
    assert len(own) == tokenizer.vocab_size
    messages = [{"role": "user", "content": "Hello"}]
    text = own.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "user: Hello\nassistant go"
    assert own.apply_chat_template(messages, add_generation_prompt=True) == own.encode(text)
    assert own.apply_chat_template(messages, tokenize=False, note="!") == "user: Hello!"
