from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmpack.runtime.engine as engine_module
from llmpack.errors import ContextLengthExceeded, DuplicateRequest, QueueFull, RequestError, UsageError
from llmpack.runtime.assembler import OutputAssembler
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.paper_runner import PaperRunner, paper_logits
from llmpack.runtime.request import GenerationRequest, Logits, SequenceOutput
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, RunnerShape
from llmpack.runtime.sampler import SampledToken, prompt_logprobs
from tests.runtime.letters import expected_ids, generate, letter_tokenizer, merge_by_id, run_to_end
from tests.runtime.shapes import VOCAB_SIZE, make_request, requests_for, runner_shapes

SHAPE = RunnerShape(4, 64, VOCAB_SIZE, prefill_buckets=(4, 16), decode_buckets=(1, 2, 4))


def make_engine(runner: PaperRunner | None = None, **options: int) -> Engine:
    return Engine(runner or PaperRunner(SHAPE), letter_tokenizer(), EngineOptions(**options))


@given(st.data(), runner_shapes())
def test_tokens_are_those_of_the_paper_whoever_shares_the_batch(data: st.DataObject, shape: RunnerShape) -> None:
    requests = [data.draw(requests_for(shape, f"r{index}")) for index in range(data.draw(st.integers(1, 7)))]
    max_running = data.draw(st.integers(1, shape.batch_size))
    engine = Engine(PaperRunner(shape), letter_tokenizer(), EngineOptions(max_running=max_running))
    arrivals, outputs = requests.copy(), []
    while arrivals or engine.has_work:
        for _ in range(data.draw(st.integers(0 if engine.has_work else 1, 2))):
            if arrivals:
                engine.add(arrivals.pop(0))
        outputs += engine.step()
    merged = merge_by_id(outputs)
    for request in requests:
        output = merged[request.request_id]
        assert list(output.token_ids) == expected_ids(request)
        assert output.finish_reason == "length"
        assert output.num_output_tokens == request.max_tokens


@given(st.data(), runner_shapes())
def test_aborts_at_any_moment_hurt_nobody_else(data: st.DataObject, shape: RunnerShape) -> None:
    requests = [data.draw(requests_for(shape, f"r{index}")) for index in range(data.draw(st.integers(1, 7)))]
    engine = Engine(PaperRunner(shape), letter_tokenizer())
    engine.add_all(requests)
    aborted: set[str] = set()
    outputs: list[SequenceOutput] = []
    while engine.has_work:
        for request_id in data.draw(st.sets(st.sampled_from([request.request_id for request in requests]), max_size=1)):
            if request_id in engine.live_ids:
                aborted.add(request_id)
            engine.abort(request_id)
            assert request_id not in engine.live_ids
        outputs += engine.step()
    finished = [output.request_id for output in outputs if output.finish_reason is not None]
    assert sorted(finished) == sorted(request.request_id for request in requests), "each ends exactly once"
    merged = merge_by_id(outputs)
    for request in requests:
        output, expected = merged[request.request_id], expected_ids(request)
        if request.request_id in aborted:
            assert output.finish_reason == "abort"
            assert list(output.token_ids) == expected[: output.num_output_tokens]
        else:
            assert list(output.token_ids) == expected
    load = engine.metrics.snapshot()
    assert (load.num_requests_running, load.num_requests_waiting, load.kv_cache_usage_perc) == (0, 0, 0.0)


@given(st.data(), runner_shapes())
def test_prompt_logprobs_are_those_of_the_paper(data: st.DataObject, shape: RunnerShape) -> None:
    request = replace(data.draw(requests_for(shape)), num_prompt_logprobs=2)
    engine = Engine(PaperRunner(shape), letter_tokenizer())
    engine.add(request)
    outputs = run_to_end(engine)
    ids = request.prompt_ids
    rows = [paper_logits(ids[: position + 1], VOCAB_SIZE) for position in range(len(ids) - 1)]
    expected = (None, *(prompt_logprobs(np.stack(rows), ids[1:], 2) if rows else ()))
    assert outputs[0].prompt_logprobs == expected
    assert all(output.prompt_logprobs is None for output in outputs[1:])


def test_a_scored_prompt_may_fill_the_slot_and_generates_nothing() -> None:
    request = make_request(prompt_ids=(3,) * SHAPE.max_seq_len, max_tokens=0, num_prompt_logprobs=0)
    neighbour = make_request("neighbour", max_tokens=40)
    outputs = generate(make_engine(), [neighbour, request])
    output = outputs["r"]
    assert (output.finish_reason, output.token_ids, output.text, output.num_output_tokens) == ("length", (), "", 0)
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == SHAPE.max_seq_len
    assert list(outputs["neighbour"].token_ids) == expected_ids(neighbour)


def test_a_sequence_may_fill_its_slot_to_the_last_position() -> None:
    request = make_request(prompt_ids=(5, 6), max_tokens=SHAPE.max_seq_len - 2)
    output = generate(make_engine(), [request])["r"]
    assert list(output.token_ids) == expected_ids(request)
    assert output.finish_reason == "length"


def test_eos_ends_a_sequence_and_frees_its_slot_for_the_next() -> None:
    request = make_request(max_tokens=30)
    third = expected_ids(request)[2]
    engine = make_engine(max_running=1)
    outputs = generate(engine, [replace(request, eos_token_ids=frozenset({third})), make_request("next")])
    assert outputs["r"].finish_reason == "stop"
    assert outputs["r"].num_output_tokens == expected_ids(request).index(third) + 1
    assert list(outputs["next"].token_ids) == expected_ids(make_request("next"))


def test_the_bucket_grows_and_shrinks_with_the_running_sequences() -> None:
    runner = PaperRunner(SHAPE)
    generate(make_engine(runner), [make_request(str(index), max_tokens=20 - 6 * index) for index in range(3)])
    buckets = [batch.bucket for batch in runner.batches]
    assert [bucket for index, bucket in enumerate(buckets) if buckets[index - 1 : index] != [bucket]] == [1, 2, 4, 2, 1]


def test_a_full_queue_refuses_all_or_none() -> None:
    engine = make_engine(max_waiting=1)
    engine.add_all([make_request(str(index)) for index in range(3)])
    with pytest.raises(QueueFull, match="Try again in 1 s"):
        engine.add_all([make_request(str(index)) for index in (3, 4, 5)])
    assert set(engine.live_ids) == {"0", "1", "2"}
    engine.add_all([make_request("3"), make_request("4")])
    with pytest.raises(QueueFull):
        engine.add(make_request("5"))
    assert engine.metrics.snapshot().admission_rejections["queue_full"] == 2
    assert set(merge_by_id(run_to_end(engine))) == {"0", "1", "2", "3", "4"}


def test_a_group_that_could_never_fit_is_not_told_to_try_again() -> None:
    with pytest.raises(RequestError, match="more sequences than the server ever holds") as caught:
        make_engine(max_waiting=1).add_all([make_request(str(index)) for index in range(6)])
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("request_id", "prompt_ids", "max_tokens", "kind", "param"),
    [
        ("live", (1,), 1, DuplicateRequest, "request_id"),
        ("new", (1,), 1, DuplicateRequest, "request_id"),
        ("long", (1,) * 65, 0, ContextLengthExceeded, "prompt"),
        ("both", (1,) * 60, 5, ContextLengthExceeded, "max_tokens"),
        ("empty", (), 1, RequestError, "prompt"),
        ("negative", (1, -1), 1, RequestError, "prompt"),
        ("beyond", (VOCAB_SIZE,), 1, RequestError, "prompt"),
    ],
)
def test_what_cannot_run_is_refused_and_takes_its_group_along(
    request_id: str, prompt_ids: tuple[int, ...], max_tokens: int, kind: type[RequestError], param: str
) -> None:
    engine = make_engine()
    engine.add(make_request("live"))
    with pytest.raises(kind) as caught:
        engine.add_all([make_request("new"), make_request(request_id, prompt_ids, max_tokens)])
    assert (type(caught.value), caught.value.param) == (kind, param)
    assert set(engine.live_ids) == {"live"}
    assert sum(engine.metrics.snapshot().admission_rejections.values()) == 1


@pytest.mark.parametrize("options", [{"max_running": 0}, {"max_running": 5}, {"max_waiting": -1}])
def test_limits_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        make_engine(**options)


def test_abort_is_idempotent_and_frees_the_slot_at_once() -> None:
    engine = make_engine(max_running=1)
    engine.add_all([make_request("a", max_tokens=30), make_request("b")])
    for _ in range(3):
        engine.step()
    engine.abort("a")
    engine.abort("a")
    engine.abort("never heard of")
    assert engine.metrics.snapshot().num_requests_running == 0
    outputs = engine.step()
    assert [(output.request_id, output.finish_reason) for output in outputs] == [("a", "abort"), ("b", None)]
    assert engine.metrics.snapshot().request_success["abort"] == 1


class BrokenModel(PaperRunner):
    """Gives NaN for every slot but the first."""

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        result = super().prefill(chunk)
        if chunk.slot > 0 and result.all is not None:
            result.all.fill(np.nan)
        return result

    def decode(self, batch: DecodeBatch) -> Logits:
        logits = super().decode(batch)
        logits[1 - batch.first_slot :] = np.nan
        return logits


def test_logits_that_are_not_numbers_end_one_sequence_alone(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(BrokenModel(SHAPE))
    with caplog.at_level(logging.CRITICAL):
        outputs = generate(engine, [make_request("good", max_tokens=9), make_request("bad", max_tokens=9)])
    assert list(outputs["good"].token_ids) == expected_ids(make_request("good", max_tokens=9))
    assert (outputs["bad"].finish_reason, outputs["bad"].num_output_tokens) == ("abort", 1)
    assert "not finite" in (outputs["bad"].error or "")
    assert outputs["bad"].error_param is None
    assert engine.metrics.snapshot().request_success == {"stop": 0, "length": 1, "abort": 0, "error": 1}


def test_a_request_that_allows_no_token_is_told_its_field() -> None:
    allowed = replace(make_request().sampling, allowed_token_ids=(3,))
    bad = replace(make_request("bad", max_tokens=9), sampling=allowed, min_tokens=9, eos_token_ids=frozenset({3}))
    outputs = generate(make_engine(), [make_request("good", max_tokens=9), bad])
    assert list(outputs["good"].token_ids) == expected_ids(make_request("good", max_tokens=9))
    assert outputs["good"].error is None
    assert (outputs["bad"].finish_reason, outputs["bad"].error_param) == ("abort", "allowed_token_ids")
    assert "no token is left" in (outputs["bad"].error or "")


@pytest.mark.parametrize("broken", ["SamplerState", "OutputAssembler"])
def test_a_request_whose_state_cannot_be_built_ends_alone(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def build(*arguments: object) -> object:
        if any(isinstance(one, GenerationRequest) and one.request_id == "bad" for one in arguments):
            raise MemoryError("no room")
        return original(*arguments)

    original = getattr(engine_module, broken)
    monkeypatch.setattr(engine_module, broken, build)
    engine = make_engine()
    outputs = generate(engine, [make_request("bad"), make_request("good")])
    assert list(outputs["good"].token_ids) == expected_ids(make_request("good"))
    assert (outputs["bad"].finish_reason, outputs["bad"].error) == ("abort", "preparing the output failed")
    assert "no room" in caplog.text
    assert engine.metrics.snapshot().request_success["error"] == 1


def test_a_prompt_that_cannot_be_scored_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(BrokenModel(SHAPE))
    with caplog.at_level(logging.CRITICAL):
        outputs = generate(engine, [make_request("good", max_tokens=9), make_request("bad", num_prompt_logprobs=1)])
    assert outputs["good"].finish_reason == "length"
    assert (outputs["bad"].finish_reason, outputs["bad"].num_output_tokens) == ("abort", 0)


def test_text_that_cannot_be_assembled_ends_one_sequence_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = OutputAssembler.append

    def append(self: OutputAssembler, token: SampledToken) -> SequenceOutput:
        if len(broken) < 1:
            broken.append(token)
            raise ValueError("Invalid prefix encountered")
        return original(self, token)

    broken: list[SampledToken] = []
    monkeypatch.setattr(OutputAssembler, "append", append)
    engine = make_engine()
    outputs = generate(engine, [make_request("bad"), make_request("good")])
    assert (outputs["bad"].finish_reason, outputs["bad"].error) == ("abort", "assembling the text of the output failed")
    assert list(outputs["good"].token_ids) == expected_ids(make_request("good"))
    assert "Invalid prefix encountered" in caplog.text


@pytest.mark.parametrize(("num_requests", "prompt_len", "num_tokens"), [(1, 1, 1), (7, 20, 5), (9, 3, 2)])
def test_metrics_are_exact(num_requests: int, prompt_len: int, num_tokens: int) -> None:
    engine = make_engine()
    engine.add_all([make_request(str(index), (2,) * prompt_len, num_tokens) for index in range(num_requests)])
    peak = 0.0
    while engine.has_work:
        engine.step()
        peak = max(peak, engine.metrics.snapshot().kv_cache_usage_perc)
    snapshot = engine.metrics.snapshot()
    histograms = snapshot.histograms
    assert snapshot.prompt_tokens == num_requests * prompt_len
    assert snapshot.generation_tokens == num_requests * num_tokens
    assert snapshot.request_success == {"stop": 0, "length": num_requests, "abort": 0, "error": 0}
    assert histograms["time_to_first_token_seconds"].count == num_requests
    assert histograms["inter_token_latency_seconds"].count == num_requests * (num_tokens - 1)
    assert histograms["e2e_request_latency_seconds"].count == num_requests
    assert histograms["request_prompt_tokens"].sum == num_requests * prompt_len
    assert histograms["request_generation_tokens"].sum == num_requests * num_tokens
    computed = num_requests * (prompt_len + num_tokens - 1) - snapshot.prefix_cache_hits
    assert histograms["iteration_tokens_total"].sum == computed
    assert 0.0 < peak <= 1.0 or num_tokens == 1
    assert (snapshot.num_requests_running, snapshot.num_requests_waiting, snapshot.kv_cache_usage_perc) == (0, 0, 0.0)


def test_latencies_come_from_the_injected_clock() -> None:
    seconds = iter(range(1000))
    engine = Engine(PaperRunner(SHAPE), letter_tokenizer(), clock=lambda: float(next(seconds)))
    engine.add_all([make_request(max_tokens=3)], arrived_s=-5.0)
    run_to_end(engine)
    histograms = engine.metrics.snapshot().histograms
    assert histograms["request_queue_time_seconds"].sum == 5.0
    assert histograms["time_to_first_token_seconds"].sum == 6.0
    assert histograms["inter_token_latency_seconds"].sum == 4.0
