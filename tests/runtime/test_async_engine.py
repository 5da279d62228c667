from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.errors import ContextLengthExceeded, DuplicateRequest, EngineError, QueueFull
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.request import GenerationRequest, Logits, SequenceOutput
from llmpack.runtime.runner import DecodeBatch, RunnerShape
from llmpack.runtime.stream import Stream, merge_outputs
from tests.runtime.letters import expected_ids, letter_tokenizer, merge_by_id
from tests.runtime.shapes import VOCAB_SIZE, make_request

SHAPE = RunnerShape(4, 256, VOCAB_SIZE, prefill_buckets=(4, 16), decode_buckets=(1, 2, 4))
SLOW_STEP_S = 0.005


@contextmanager
def running_engine(runner: PaperRunner | None = None, **options: int) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(Engine(runner or PaperRunner(SHAPE), letter_tokenizer(), EngineOptions(**options)))
    engine.start()
    try:
        yield engine
    finally:
        engine.shutdown()


@asynccontextmanager
async def load_gone_within(engine: AsyncEngine, limit_s: float) -> AsyncIterator[None]:
    """Checks that nothing runs or waits `limit_s` seconds after the block at the latest."""
    yield
    deadline_s = time.monotonic() + limit_s
    while (load := engine.metrics.snapshot()).num_requests_running + load.num_requests_waiting:
        assert time.monotonic() < deadline_s, load
        await asyncio.sleep(0.005)


async def read(stream: Stream) -> list[SequenceOutput]:
    return [output async for output in stream]


async def read_all(engine: AsyncEngine, requests: Sequence[GenerationRequest]) -> dict[str, SequenceOutput]:
    return merge_by_id(await read(engine.submit(requests)))


def test_many_streams_get_their_own_tokens() -> None:
    groups = [[make_request(f"{group}-{index}", (group, index), 6 + index) for index in range(3)] for group in range(9)]

    async def main(engine: AsyncEngine) -> list[dict[str, SequenceOutput]]:
        return await asyncio.gather(*(read_all(engine, group) for group in groups))

    with running_engine() as engine:
        merged = asyncio.run(main(engine))
    for group, outputs in zip(groups, merged, strict=True):
        for request in group:
            assert list(outputs[request.request_id].token_ids) == expected_ids(request)
            assert outputs[request.request_id].finish_reason == "length"


def test_several_event_loops_in_turn_and_at_once() -> None:
    request = make_request(max_tokens=30)
    results: list[list[int]] = []

    def client(name: str) -> None:
        outputs = asyncio.run(read_all(engine, [make_request(name, max_tokens=30)]))
        results.append(list(outputs[name].token_ids))

    with running_engine() as engine:
        client("first")
        client("second")
        threads = [threading.Thread(target=client, args=(f"thread {index}",)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected_ids(request)] * 5


def test_refusals_are_raised_at_once_and_for_the_whole_group() -> None:
    async def main(engine: AsyncEngine) -> None:
        stream = engine.submit([make_request("live", max_tokens=200)])
        with pytest.raises(DuplicateRequest):
            engine.submit([make_request("new"), make_request("live")])
        with pytest.raises(ContextLengthExceeded):
            engine.submit([make_request("new"), make_request("long", max_tokens=10**4)])
        with pytest.raises(QueueFull):
            engine.submit([make_request(f"many {index}") for index in range(5)])
        others = engine.submit([make_request("new"), *(make_request(f"fits {index}") for index in range(3))])
        assert len(merge_by_id(await read(others))) == 4
        await stream.aclose()

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S), max_waiting=1) as engine:
        asyncio.run(main(engine))
        rejections = engine.metrics.snapshot().admission_rejections
    assert rejections == {
        "queue_full": 1,
        "context_length_exceeded": 1,
        "duplicate_request": 1,
        "invalid_request": 0,
    }


@pytest.mark.parametrize("way", ["abort", "aclose", "cancel", "async with"])
def test_leaving_frees_slots_and_drops_what_waits(way: str) -> None:
    async def leave(engine: AsyncEngine, stream: Stream) -> None:
        if way == "abort":
            stream.abort()
            stream.abort()
            merged = merge_by_id(await read(stream))
            assert {output.finish_reason for output in merged.values()} == {"abort"}
        elif way == "aclose":
            await stream.aclose()
            assert await read(stream) == []
        elif way == "cancel":
            task = asyncio.create_task(read(stream))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            async with stream:
                await anext(stream)

    async def main(engine: AsyncEngine) -> None:
        stream = engine.submit([make_request(str(index), max_tokens=200) for index in range(8)])
        await anext(stream)
        async with load_gone_within(engine, limit_s=1.0):
            await leave(engine, stream)
        again = make_request("0", max_tokens=2)
        assert list((await read_all(engine, [again]))["0"].token_ids) == expected_ids(again)

    runner = PaperRunner(SHAPE, step_time_s=SLOW_STEP_S)
    with running_engine(runner) as engine:
        asyncio.run(main(engine))
        assert engine.metrics.snapshot().request_success["abort"] == 8
    prefilled = {chunk.slot for chunk in runner.chunks}
    assert len(runner.chunks) <= 6, "the four that waited were never prefilled"
    assert prefilled <= {0, 1, 2, 3}


def test_a_late_close_does_not_end_a_later_request_of_the_same_name() -> None:
    async def main(engine: AsyncEngine) -> None:
        first = engine.submit([make_request("name", max_tokens=1)])
        assert await first.ready_within(5.0)
        request = make_request("name", max_tokens=30)
        second = engine.submit([request])
        await first.aclose()
        assert list(merge_by_id(await read(second))["name"].token_ids) == expected_ids(request)

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S)) as engine:
        asyncio.run(main(engine))


def test_a_loop_that_ends_takes_its_requests_along() -> None:
    async def forget(engine: AsyncEngine) -> None:
        await anext(engine.submit([make_request(str(index), max_tokens=200) for index in range(6)]))

    async def main(engine: AsyncEngine) -> None:
        async with load_gone_within(engine, limit_s=1.0):
            pass
        assert (await read_all(engine, [make_request("next")]))["next"].finish_reason == "length"

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S)) as engine:
        asyncio.run(forget(engine))
        asyncio.run(main(engine))


def test_the_reason_of_a_failure_survives_merging() -> None:
    first = SequenceOutput("r", text="a", token_ids=(1,), num_output_tokens=1)
    last = SequenceOutput("r", finish_reason="abort", num_output_tokens=1, error="no token", error_param="bad_words")
    merged = merge_outputs([first, last])
    assert (merged.text, merged.finish_reason) == ("a", "abort")
    assert (merged.error, merged.error_param) == ("no token", "bad_words")


def test_a_slow_reader_gets_merged_outputs_and_holds_nobody_up() -> None:
    slow_request, fast_request = make_request("slow", max_tokens=100), make_request("fast", (9, 8), max_tokens=100)

    async def main(engine: AsyncEngine) -> None:
        slow = engine.submit([slow_request])
        first = await anext(slow)
        fast = merge_by_id(await read(engine.submit([fast_request])))
        async with load_gone_within(engine, limit_s=5.0):
            pass  # the engine finished, although only one output of the slow stream was read
        rest = await read(slow)
        assert list(fast["fast"].token_ids) == expected_ids(fast_request)
        assert len(rest) == 1
        merged = merge_by_id([first, *rest])["slow"]
        assert list(merged.token_ids) == expected_ids(slow_request)
        assert merged.text == letter_tokenizer().decode(expected_ids(slow_request))

    with running_engine() as engine:
        asyncio.run(main(engine))


def test_one_wake_up_per_step_and_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(engine: AsyncEngine) -> int:
        loop = asyncio.get_running_loop()
        original, num_calls = loop.call_soon_threadsafe, 0

        def count(*args: object, **kwargs: object) -> object:
            nonlocal num_calls
            num_calls += 1
            return original(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        streams = [engine.submit([make_request(str(index), max_tokens=20)]) for index in range(4)]
        await asyncio.gather(*(read(stream) for stream in streams))
        return num_calls

    runner = PaperRunner(SHAPE)
    with running_engine(runner) as engine:
        num_calls = asyncio.run(main(engine))
    assert num_calls <= len(runner.batches) + 1, "one for each step: every step but the first decodes"


class DyingModel(PaperRunner):
    def decode(self, batch: DecodeBatch) -> Logits:
        if batch.lengths[0] >= 6:
            raise RuntimeError("bad memory")
        return super().decode(batch)


def test_a_dead_engine_says_so_everywhere() -> None:
    async def main(engine: AsyncEngine) -> None:
        streams = [engine.submit([make_request(str(index), max_tokens=20)]) for index in range(6)]
        for stream in streams:
            with pytest.raises(EngineError, match="bad memory"):
                await read(stream)
        with pytest.raises(EngineError):
            engine.submit([make_request("late")])
        streams[0].abort()

    with running_engine(DyingModel(SHAPE)) as engine:
        asyncio.run(main(engine))
        assert not engine.is_running
        assert isinstance(engine.errored, RuntimeError)
        with pytest.raises(EngineError, match="bad memory"):
            engine.check_health()


def test_an_engine_that_was_not_started_says_so() -> None:
    engine = AsyncEngine(Engine(PaperRunner(SHAPE), letter_tokenizer()))
    assert not engine.is_running
    with pytest.raises(EngineError, match="start"):
        engine.check_health()
    engine.shutdown()


@pytest.mark.parametrize(("drain_timeout_s", "reason"), [(10.0, "length"), (0.0, "abort"), (0.05, "abort")])
def test_shutdown_drains_up_to_its_time(drain_timeout_s: float, reason: str) -> None:
    async def main(engine: AsyncEngine) -> None:
        num_tokens = 40 if reason == "length" else 250
        streams = [engine.submit([make_request(str(index), max_tokens=num_tokens)]) for index in range(6)]
        await anext(streams[0])
        stopping = asyncio.create_task(asyncio.to_thread(engine.shutdown, drain_timeout_s))
        while engine.is_running:
            await asyncio.sleep(0.001)
        with pytest.raises((QueueFull, EngineError)):
            engine.submit([make_request("late")])
        outputs = [merge_by_id(await read(stream)) for stream in streams]
        assert {output.finish_reason for merged in outputs for output in merged.values()} == {reason}
        await stopping

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S)) as engine:
        asyncio.run(main(engine))
        assert engine.errored is None
        with pytest.raises(EngineError, match="not running"):
            engine.check_health()


def test_a_second_shutdown_shortens_the_first() -> None:
    async def main(engine: AsyncEngine) -> float:
        stream = engine.submit([make_request(max_tokens=250)])
        await anext(stream)
        began_s = time.monotonic()
        patient = asyncio.create_task(asyncio.to_thread(engine.shutdown, 60.0))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(engine.shutdown, 0.0)
        await patient
        assert (await read(stream))[-1].finish_reason == "abort"
        return time.monotonic() - began_s

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S)) as engine:
        assert asyncio.run(main(engine)) < 1.0


def test_ready_within_waits_without_ending_the_request() -> None:
    async def main(engine: AsyncEngine) -> None:
        blocker = engine.submit([make_request("blocker", max_tokens=60)])
        queued = engine.submit([make_request("queued", max_tokens=2)])
        assert not await queued.ready_within(0.02)
        assert not await queued.ready_within(0.02)
        assert await queued.ready_within(10.0)
        assert await queued.ready_within(0.0)
        assert merge_by_id(await read(queued))["queued"].finish_reason == "length"
        assert await queued.ready_within(0.0), "the end is something that the iterator need not wait for"
        await blocker.aclose()

    with running_engine(PaperRunner(SHAPE, step_time_s=SLOW_STEP_S), max_running=1) as engine:
        asyncio.run(main(engine))


def test_an_idle_engine_sleeps() -> None:
    with running_engine() as engine:
        asyncio.run(read_all(engine, [make_request()]))
        began_s = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - began_s < 0.1


@given(st.data())
def test_random_traffic_ends_and_leaves_nothing_behind(data: st.DataObject) -> None:
    num_clients = data.draw(st.integers(1, 8))
    lengths = [data.draw(st.integers(1, 30)) for _ in range(num_clients)]
    patience = [data.draw(st.integers(0, 12)) for _ in range(num_clients)]

    async def client(engine: AsyncEngine, index: int) -> None:
        request = make_request(f"client {index}", (index + 1, 2), max_tokens=lengths[index])
        outputs = []
        async with engine.submit([request]) as stream:
            async for output in stream:
                outputs.append(output)
                if len(outputs) > patience[index]:
                    break
        token_ids = [token_id for output in outputs for token_id in output.token_ids]
        assert token_ids == expected_ids(request)[: len(token_ids)]

    async def main(engine: AsyncEngine) -> None:
        async with load_gone_within(engine, limit_s=5.0):
            await asyncio.gather(*(client(engine, index) for index in range(num_clients)))

    with running_engine() as engine:
        asyncio.run(main(engine))
        assert sum(engine.metrics.snapshot().request_success.values()) == num_clients
