"""The runtime of the target `triton`, with Triton played by plain objects and the model by paper."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from llmpack.bundle.triton_runtime.text_generation import TextGeneration
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.tokenizer import Tokenizer
from tests.bundle.fake_triton import FakeTriton, Request
from tests.bundle.models import load_scripted
from tests.server.scripted import SCRIPT

GREEDY = json.dumps({"temperature": 0, "max_tokens": 200})
Start = Callable[..., tuple[TextGeneration, FakeTriton]]


@pytest.fixture
def start(tokenizer: Tokenizer) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(**settings: Any) -> tuple[TextGeneration, FakeTriton]:
            triton = FakeTriton()
            model = TextGeneration(triton, lambda: load_scripted(tokenizer, **settings))
            stack.callback(model.close)
            return model, triton

        yield begin


def run(model: TextGeneration, *requests: Request) -> None:
    assert model.execute(requests) is None
    for request in requests:
        request.sender.wait()


def test_whole_answer_begins_with_the_prompt(start: Start) -> None:
    model, triton = start()
    whole, short = (
        Request(text_input=" go", sampling_parameters=GREEDY, **extra)
        for extra in ({}, {"exclude_input_in_output": True})
    )
    run(model, whole, short)
    assert whole.sender.texts() == [" go" + SCRIPT]
    assert short.sender.texts() == [SCRIPT]
    assert triton.Logger.errors == []


@pytest.mark.parametrize("stream_text", ["delta", "cumulative"])
def test_streamed_text(start: Start, stream_text: str) -> None:
    model, _ = start(stream_text=stream_text, step_time_s=0.005)
    request = Request(text_input=" go", stream=True, sampling_parameters=GREEDY)
    run(model, request)
    texts = request.sender.texts()
    assert len(texts) > 3
    if stream_text == "delta":
        assert "".join(texts) == SCRIPT
    else:
        assert texts[-1] == " go" + SCRIPT
        assert all(later.startswith(sooner) for sooner, later in itertools.pairwise(texts))


def test_requests_share_the_batch(start: Start) -> None:
    """Forty requests over four slots take about ten answers' time, not forty."""
    model, _ = start(step_time_s=0.004)
    one, *many = (Request(text_input=" go", stream=True, sampling_parameters=GREEDY) for _ in range(17))
    began_s = time.monotonic()
    run(model, one)
    alone_s = time.monotonic() - began_s
    run(model, *many)
    assert all("".join(request.sender.texts()) == SCRIPT for request in many)
    assert time.monotonic() - began_s - alone_s < 12 * alone_s


def test_choices_and_extra_outputs(start: Start) -> None:
    model, triton = start()
    sampling = json.dumps({"temperature": 0, "n": 2, "logprobs": 1, "max_tokens": 200})
    names = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")
    request = Request(text_input=" go", sampling_parameters=sampling, **{f"return_{name}": True for name in names})
    run(model, request)
    (response,) = request.sender.responses
    outputs = response.outputs
    assert outputs.keys() == {"text_output", *names}
    assert outputs["finish_reason"].tolist() == [b"stop", b"stop"]
    assert outputs["num_input_tokens"].shape == ()
    assert outputs["num_input_tokens"].dtype == outputs["num_output_tokens"].dtype == np.uint32
    entries = [json.loads(text) for text in outputs["logprobs"]]
    assert [len(choice) for choice in entries] == outputs["num_output_tokens"].tolist()
    total = sum(fields["logprob"] for entry in entries[0] for fields in entry.values() if fields["rank"] == 1)
    assert outputs["cumulative_logprob"].tolist() == pytest.approx([total, total], abs=1e-5)
    model.close()
    counted = triton.MetricFamily.values
    assert counted["vllm:generation_tokens_total"] == outputs["num_output_tokens"].sum()
    assert counted["vllm:time_to_first_token_seconds"] == counted["vllm:request_params_n"] == 1


def test_cancelled_requests_end_with_one_error_and_free_their_slots(start: Start) -> None:
    model, triton = start(step_time_s=0.01)
    endless = json.dumps({"temperature": 0, "max_tokens": 500, "ignore_eos": True})
    requests = [Request(text_input=" go", stream=index % 2 == 0, sampling_parameters=endless) for index in range(12)]
    model.execute(requests)
    assert requests[0].sender.first.wait(10)
    for request in requests:  # some run, some wait for a slot, some have not sent anything
        request.sender.cancelled = True
    for request in requests:
        error = request.sender.wait()[-1].error
        assert error is not None
        assert (error.code, error.message) == ("cancelled", "Request was cancelled")
    run(model, after := Request(text_input=" go", sampling_parameters=GREEDY))
    assert after.sender.texts() == [" go" + SCRIPT]
    assert triton.Logger.errors == []


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        ({"sampling_parameters": '{"top_p": 2}'}, "invalid", "top_p must be a number in its range"),
        ({"stream": np.array([True, False])}, "invalid", "stream must hold one element; given: [2]"),
        ({"text_input": np.array([b"\xff"], dtype=np.object_)}, "invalid", "text_input is not UTF-8"),
        ({"stream": True, "exclude_input_in_output": False}, "invalid", "`exclude_input_in_output` = False is not"),
        ({"text_input": "go " * 600}, "invalid", "maximum context length is 512 tokens"),
    ],
)
def test_refusals(start: Start, inputs: dict[str, Any], code: str, message: str) -> None:
    model, triton = start()
    run(model, request := Request(**({"text_input": " go"} | inputs)))
    assert request.sender.error().code == code
    assert message in request.sender.error().message
    assert triton.Logger.errors == []


def test_missing_prompt_is_named(start: Start) -> None:
    model, _ = start()
    run(model, request := Request(stream=True))
    assert request.sender.error().message == "the input text_input is missing"


def test_full_queue_is_unavailable(start: Start) -> None:
    model, _ = start(max_waiting=0, step_time_s=0.02)
    requests = [Request(text_input=" go", sampling_parameters=GREEDY) for _ in range(5)]
    run(model, *requests)
    errors = [request.sender.responses[0].error for request in requests]
    assert [error.code for error in errors if error] == ["unavailable"]


def test_unforeseen_errors_are_logged_and_not_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, triton = start()
    monkeypatch.setattr(Tokenizer, "encode", lambda *_args, **_kwargs: 1 / 0)
    run(model, request := Request(text_input=" go"))
    assert request.sender.error().code == "internal"
    assert request.sender.error().message == "internal error (ZeroDivisionError); see the server's log"
    model.close()
    assert "ZeroDivisionError" in triton.Logger.errors[0]


def test_dead_engine_is_told_to_every_request(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = start()
    monkeypatch.setattr(PaperRunner, "decode", lambda *_args: 1 / 0)
    run(model, *(requests := [Request(text_input=" go", sampling_parameters=GREEDY) for _ in range(2)]))
    run(model, late := Request(text_input=" go"))
    for request in (*requests, late):
        assert "the engine stopped" in request.sender.error().message


def test_refused_metrics_do_not_harm_requests(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    model, triton = start()
    monkeypatch.setattr(triton.MetricFamily, "increment", lambda *_args: 1 / 0)
    run(model, request := Request(text_input=" go", sampling_parameters=GREEDY))
    assert request.sender.texts() == [" go" + SCRIPT]
    model.close()
    assert "a metric could not be reported" in triton.Logger.errors[0]
