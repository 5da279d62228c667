from __future__ import annotations

from typing import Any

import pytest

from llmpack.bundle.triton_runtime.sampling import build_params, parse_sampling_json
from llmpack.errors import RequestError
from llmpack.runtime.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({"temperature": "0.5", "top_k": "3", "seed": "-1"}, {"temperature": 0.5, "top_k": 3, "seed": -1}),
        ({"ignore_eos": "true", "skip_special_tokens": "False"}, {"ignore_eos": True, "skip_special_tokens": False}),
        ({"stop": ["a", "b"], "logit_bias": {"3": 1.5}}, {"stop": ["a", "b"], "logit_bias": {"3": 1.5}}),
        ({"stop": "7"}, {"stop": "7"}),
        ({"top_p": None}, {}),
        ({"max_tokens": None}, {"max_tokens": None}),
    ],
)
def test_values(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert build_params(values) == SamplingParams(**expected)


def test_default_length() -> None:
    assert build_params({}, 99).max_tokens == 99
    assert build_params({"max_tokens": 5}, 99).max_tokens == 5


@pytest.mark.parametrize(
    ("values", "param", "message"),
    [
        ({"ignore_eos": "maybe"}, "ignore_eos", "allowed: true or false"),
        ({"temperature": "warm"}, "temperature", "allowed: a number"),
        ({"n": "1.5"}, "n", "allowed: an integer"),
        ({"n": True}, "n", "n must be an integer"),
        ({"use_beam_search": True}, "use_beam_search", "unknown or unsupported"),
        ({"output_kind": 1}, "output_kind", "unknown or unsupported"),
        ({"max_token": 1}, "max_token", "Did you mean max_tokens?"),
    ],
)
def test_refusals(values: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        build_params(values)
    assert caught.value.param == param
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "null", "3", '"n"', "[" * 100_000])
def test_only_objects(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_sampling_json(text)
    assert caught.value.param == "sampling_parameters"
