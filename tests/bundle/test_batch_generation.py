"""The runtime of the target `triton-python`."""

from __future__ import annotations

import json

import pytest

from llmpack.bundle.triton_runtime.batch_generation import BatchGeneration
from llmpack.runtime.tokenizer import Tokenizer
from tests.bundle.fake_triton import FakeTriton, InferenceResponse, Request
from tests.bundle.models import load_scripted
from tests.server.scripted import SCRIPT

GREEDY = {"temperature": 0}


def texts_of(response: InferenceResponse) -> list[str]:
    assert response.error is None
    tensor = response.outputs["generated_text"]
    assert tensor.shape == (len(tensor), 1)
    return [row[0].decode() for row in tensor]


def test_rows_of_all_requests_are_one_batch(tokenizer: Tokenizer) -> None:
    triton = FakeTriton()
    model = BatchGeneration(triton, load_scripted(tokenizer, max_tokens=200))
    requests = [Request(GREEDY, prompt=[" go"] * count) for count in (1, 2, 1)]
    responses = model.execute(requests)
    assert [texts_of(response) for response in responses] == [[SCRIPT], [SCRIPT] * 2, [SCRIPT]]
    counted = triton.MetricFamily.values
    assert (counted["llmpack:batches_total"], counted["llmpack:batch_rows_total"]) == (1, 4)


def test_bad_requests_fail_alone(tokenizer: Tokenizer) -> None:
    model = BatchGeneration(FakeTriton(), load_scripted(tokenizer, max_tokens=200))
    bad = [
        (Request({"top_p": 2}, prompt=[" go"]), "top_p must be"),
        (Request({"n": 2}, prompt=[" go"]), "one text per prompt"),
        (Request(prompt=[" go" * 600]), "maximum context length"),
        (Request(), "the input prompt is missing"),
        (Request(prompt=[" go"] * 2, sampling_parameters=["{}"]), "one text per prompt; given: 1; allowed: 2"),
    ]
    good = Request(GREEDY, prompt=[" go"])
    *refused, answered = model.execute([*(request for request, _ in bad), good])
    assert texts_of(answered) == [SCRIPT]
    for response, (_, message) in zip(refused, bad, strict=True):
        assert response.error.code == "invalid"
        assert message in response.error.message


def test_sampling_per_row(tokenizer: Tokenizer) -> None:
    model = BatchGeneration(FakeTriton(), load_scripted(tokenizer, report_metrics=False))
    samplings = [json.dumps({"temperature": 0, "max_tokens": count}) for count in (1, 200)]
    (response,) = model.execute([Request(prompt=[" go", " go"], sampling_parameters=samplings)])
    short, whole = texts_of(response)
    assert whole == SCRIPT
    assert whole.startswith(short)
    assert short != whole


def test_cancelled_requests_leave_their_slots(tokenizer: Tokenizer) -> None:
    model = BatchGeneration(FakeTriton(), load_scripted(tokenizer, max_tokens=500))
    gone, staying = (Request({"ignore_eos": True, **GREEDY}, prompt=[" go"]) for _ in range(2))
    gone.cancelled = True
    first, second = model.execute([gone, staying])
    assert first.error.code == "cancelled"
    assert texts_of(second)


def test_nothing_to_generate(tokenizer: Tokenizer) -> None:
    triton = FakeTriton()
    (response,) = BatchGeneration(triton, load_scripted(tokenizer)).execute([Request(prompt=[])])
    assert response.error.message == "prompt is empty; allowed: at least one row"
    assert triton.MetricFamily.values == {}


@pytest.mark.parametrize("count", [5, 9])
def test_more_rows_than_slots(tokenizer: Tokenizer, count: int) -> None:
    model = BatchGeneration(FakeTriton(), load_scripted(tokenizer, max_tokens=200))
    (response,) = model.execute([Request(GREEDY, prompt=[" go"] * count)])
    assert texts_of(response) == [SCRIPT] * count
