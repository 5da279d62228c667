"""Beginnings of prompts that stand in a slot already: found, never mistaken, and not computed again."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.chunk_plan import ChunkSpan, plan_chunks
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.prefix_cache import HeldPrefix, PrefixCache, reusable_len
from llmpack.runtime.request import GenerationRequest, SequenceOutput
from llmpack.runtime.runner import PrefixCopy, RunnerShape
from tests.runtime.letters import expected_ids, letter_tokenizer, merge_by_id, run_to_end
from tests.runtime.shapes import VOCAB_SIZE, make_request, runner_shapes

CHUNK_LEN = 16
SHAPE = RunnerShape(4, 64, VOCAB_SIZE, prefill_buckets=(4, CHUNK_LEN), decode_buckets=(1, 2, 4))
SYSTEM = tuple(range(40))  # two whole chunks and a half


def ask(name: str, *question: int, max_tokens: int = 3) -> GenerationRequest:
    return make_request(name, SYSTEM + question, max_tokens)


def make_engine(runner: PaperRunner, *, reuses_prefixes: bool = True) -> Engine:
    return Engine(runner, letter_tokenizer(), EngineOptions(reuses_prefixes=reuses_prefixes))


def run_one(engine: Engine, request: GenerationRequest) -> Sequence[SequenceOutput]:
    engine.add(request)
    outputs = run_to_end(engine)
    assert list(merge_by_id(outputs)[request.request_id].token_ids) == expected_ids(request)
    return outputs


def starts(runner: PaperRunner) -> list[tuple[int, int]]:
    return [(chunk.slot, chunk.start) for chunk in runner.chunks]


@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), max_size=40), st.data())
def test_a_match_is_the_longest_common_beginning_in_whole_chunks(
    held: list[int], prompt: list[int], data: st.DataObject
) -> None:
    chunk_len = data.draw(st.integers(1, 5))
    length = len(held) // chunk_len * chunk_len
    limit = data.draw(st.integers(0, 40))
    common = 0
    while common < min(length, len(prompt)) and held[common] == prompt[common]:
        common += 1
    matched = HeldPrefix(tuple(held), length).match(tuple(prompt), min(limit, len(prompt)), chunk_len)
    assert matched == min(common, limit) // chunk_len * chunk_len


def test_a_full_slot_keeps_one_position_for_the_token_that_nobody_reads() -> None:
    cache = PrefixCache(num_slots=1, chunk_len=16, max_seq_len=64)
    cache.hold(0, tuple(range(64)), 64)
    assert cache.held_len(0) == 48


@given(runner_shapes(), st.data())
def test_only_whole_chunks_at_their_usual_place_are_reusable(shape: RunnerShape, data: st.DataObject) -> None:
    chunk_len = shape.prefill_buckets[-1]
    chunks = plan_chunks(data.draw(st.integers(1, shape.max_seq_len)), shape)
    done = chunks[: data.draw(st.integers(0, len(chunks)))]
    writer: dict[int, ChunkSpan] = {position: chunk for chunk in done for position in range(chunk.start, chunk.end)}
    length = reusable_len(done, chunk_len)
    for position in range(length):
        start = position // chunk_len * chunk_len
        assert writer[position] == ChunkSpan(start, start + chunk_len, chunk_len)
    after = ChunkSpan(length, length + chunk_len, chunk_len)
    assert any(writer.get(position) != after for position in range(after.start, after.end))


def test_the_same_beginning_is_computed_once_in_its_own_slot() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    first = run_one(engine, ask("a", 50))
    second = run_one(engine, ask("b", 60))
    assert starts(runner) == [(0, 0), (0, 16), (0, 32), (0, 32)]
    assert runner.copies == []
    assert (first[0].num_cached_tokens, second[0].num_cached_tokens) == (0, 32)
    assert all(output.num_cached_tokens == 0 for output in second[1:])
    metrics = engine.metrics.snapshot()
    assert (metrics.prefix_cache_queries, metrics.prefix_cache_hits) == (82, 32)
    assert metrics.prompt_tokens == 82


def test_a_running_neighbour_lends_its_beginning_even_to_those_that_came_with_it() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    engine.add_all([ask(name, 50 + index) for index, name in enumerate("abc")])
    merged = merge_by_id(run_to_end(engine))
    assert [list(merged[name].token_ids) for name in "abc"] == [
        expected_ids(ask(name, 50 + index)) for index, name in enumerate("abc")
    ]
    assert starts(runner) == [(0, 0), (0, 16), (0, 32), (1, 32), (2, 32)]
    assert runner.copies == [PrefixCopy(0, 1, 32), PrefixCopy(0, 2, 32)]


def test_a_conversation_stays_in_its_slot_while_others_use_theirs() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    other = tuple(range(80, 40, -1))
    run_one(engine, ask("a", 50))
    run_one(engine, make_request("other", other, 3))
    run_one(engine, ask("a-again", 50, *range(16)))
    run_one(engine, make_request("other-again", (*other, 1), 3))
    assert starts(runner) == [(0, 0), (0, 16), (0, 32), (1, 0), (1, 16), (1, 32), (0, 32), (0, 48), (1, 32)]


def test_the_prompt_that_was_used_longest_ago_makes_room() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    prompts = [tuple(range(first, first + 17)) for first in range(0, 70, 14)]
    for index, prompt in enumerate(prompts[:4]):
        run_one(engine, make_request(f"r{index}", prompt, 1))
    run_one(engine, make_request("again", prompts[0], 1))
    run_one(engine, make_request("new", prompts[4], 1))
    assert starts(runner)[-2:] == [(1, 0), (1, 16)]


def test_a_small_decode_window_matters_more_than_a_copy() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    for slot in range(3):  # a beginning in each of the first three slots
        run_one(engine, make_request(f"r{slot}", tuple(range(20 * slot, 20 * slot + 17)), 1))
    engine.add(make_request("long", (90,) * 17, 12))  # takes the free slot 3
    engine.step()
    engine.add(make_request("r", (*range(16), 96), 4))  # its beginning is in slot 0, the neighbour is slot 2
    run_to_end(engine)
    assert PrefixCopy(0, 2, 16) in runner.copies
    assert max(batch.bucket for batch in runner.batches) == 2


def test_merged_outputs_keep_the_count() -> None:
    engine = make_engine(PaperRunner(SHAPE))
    run_one(engine, ask("a", 50))
    outputs = run_one(engine, ask("b", 60))
    assert len(outputs) > 1
    assert merge_by_id(outputs)["b"].num_cached_tokens == 32


def test_a_scored_prompt_is_computed_whole() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner)
    run_one(engine, ask("a"))
    run_one(engine, make_request("scored", SYSTEM, 1, num_prompt_logprobs=1))
    assert starts(runner) == [(slot, start) for slot in (0, 1) for start in (0, 16, 32)]


def test_nothing_is_reused_when_that_is_turned_off() -> None:
    runner = PaperRunner(SHAPE)
    engine = make_engine(runner, reuses_prefixes=False)
    for name in "ab":
        run_one(engine, ask(name))
    assert starts(runner) == [(0, 0), (0, 16), (0, 32)] * 2
    assert engine.metrics.snapshot().prefix_cache_hits == 0


@st.composite
def related_requests(draw: st.DrawFn, shape: RunnerShape) -> list[GenerationRequest]:
    """Requests over two ids, so that beginnings are often equal, some of them scored."""
    bodies = st.lists(st.integers(0, 1), min_size=1, max_size=shape.max_seq_len)
    requests = []
    for index in range(draw(st.integers(1, 8))):
        trunk = draw(st.sampled_from([(0,) * 40, (0, 1) * 20, ()]))
        prompt = (*trunk[: draw(st.integers(0, shape.max_seq_len))], *draw(bodies))[: shape.max_seq_len]
        room = shape.max_seq_len - len(prompt)
        scored = draw(st.sampled_from([None, None, 1]))
        tokens = draw(st.integers(0, min(6, room)))
        requests.append(make_request(f"r{index}", prompt, tokens, num_prompt_logprobs=scored))
    return requests


@given(st.data(), runner_shapes())
def test_tokens_are_those_of_the_paper_whatever_is_reused_or_aborted(data: st.DataObject, shape: RunnerShape) -> None:
    requests = data.draw(related_requests(shape))
    engine = make_engine(PaperRunner(shape))
    arrivals, outputs, aborted = requests.copy(), [], set()
    while arrivals or engine.has_work:
        for _ in range(data.draw(st.integers(0 if engine.has_work else 1, 2))):
            if arrivals:
                engine.add(arrivals.pop(0))
        if engine.live_ids and data.draw(st.integers(0, 5)) == 0:
            aborted.add(name := data.draw(st.sampled_from(sorted(engine.live_ids))))
            engine.abort(name)
        outputs += engine.step()
    merged = merge_by_id(outputs)
    for request in requests:
        if request.request_id not in aborted:
            assert list(merged[request.request_id].token_ids) == expected_ids(request)
    metrics = engine.metrics.snapshot()
    assert 0 <= metrics.prefix_cache_hits <= metrics.prefix_cache_queries
