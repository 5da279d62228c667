from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.errors import ContextLengthExceeded, RequestError
from llmpack.runtime.request import GenerationRequest
from llmpack.runtime.resolve import ModelLimits, resolve_requests
from llmpack.runtime.sampling_params import RequestOutputKind, SamplingParams
from tests.runtime.tokenizer_samples import byte_level, stories

LIMITS = ModelLimits(vocab_size=512, max_seq_len=512, eos_token_ids=frozenset({1, 2}))


def resolve(
    params: SamplingParams, num_prompt_tokens: int = 4, limits: ModelLimits = LIMITS
) -> list[GenerationRequest]:
    return resolve_requests(params, [260] * num_prompt_tokens, request_id="r", tokenizer=stories(), limits=limits)


REFUSED: list[tuple[str, Any]] = [
    *[("n", value) for value in (0, 129, True, 1.0, None)],
    *[("temperature", value) for value in (-1, 2.1, float("nan"), float("inf"), "1", True, None)],
    *[("top_p", value) for value in (0, 1.01, float("nan"))],
    *[("top_k", value) for value in (-2, 1.5, True, 10**5000)],
    *[("min_p", value) for value in (-0.1, 1.1)],
    *[("repetition_penalty", value) for value in (0, -1, float("inf"))],
    *[("presence_penalty", value) for value in (-2.1, 2.1)],
    *[("frequency_penalty", value) for value in (-2.1, float("nan"))],
    *[("max_tokens", value) for value in (-1, 1.0, "5", True, 10**5000)],
    *[("min_tokens", value) for value in (-1, 17, None)],
    *[("logprobs", value) for value in (-2, True, 1.5)],
    *[("prompt_logprobs", value) for value in (-2, "1")],
    *[("stop", value) for value in ("", ["a", ""], ["a"] * 5, [1], ["x" * 4097])],
    *[("stop_token_ids", value) for value in ([1.0], ["1"], [True], 5, "12")],
    *[("allowed_token_ids", value) for value in ([], [None])],
    *[("bad_words", value) for value in ("word", [""], [" "], [1], ["x"] * 257, ["x" * 4097])],
    *[
        ("logit_bias", value)
        for value in ({"abc": 1}, {5: 100.5}, {5: "1"}, {5: float("nan")}, {"-1": 1}, [1], {1.5: 1})
    ],
    *[("seed", value) for value in (2**63, 1.5, "1", True)],
    *[("ignore_eos", value) for value in (1, None)],
    ("skip_special_tokens", "true"),
    ("output_kind", 1),
]


@pytest.mark.parametrize(
    ("name", "value"), REFUSED, ids=[f"{name}-{number}" for number, (name, _) in enumerate(REFUSED)]
)
def test_a_bad_value_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name
    assert isinstance(caught.value, ValueError)


ACCEPTED: list[tuple[str, Any]] = [
    ("temperature", 0),
    ("temperature", np.float32(0.5)),
    ("n", np.int64(2)),
    ("top_k", -1),
    ("max_tokens", None),
    ("max_tokens", 0),
    ("logprobs", 0),
    ("seed", -1),
    ("seed", 1.0),
    ("stop", "x"),
    ("stop", ("x", "y")),
    ("logit_bias", {"5": 1, "7": -100}),
    ("output_kind", RequestOutputKind.DELTA),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_good_value_is_accepted(name: str, value: object) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value  # type: ignore[arg-type]


def test_unknown_names_and_positions_are_type_errors() -> None:
    with pytest.raises(TypeError):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        SamplingParams(1)  # type: ignore[misc]


def test_params_cannot_change_after_their_check() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = -1  # type: ignore[misc]


@pytest.mark.parametrize(("asked", "decided"), [(0, 0.0), (1e-6, 0.0), (1e-5, 0.01), (0.005, 0.01), (0.7, 0.7)])
def test_temperatures_near_zero(asked: float, decided: float) -> None:
    assert resolve(SamplingParams(temperature=asked))[0].sampling.temperature == decided


def test_one_choice_keeps_the_request_id_and_several_get_a_number() -> None:
    assert [request.request_id for request in resolve(SamplingParams())] == ["r"]
    assert [request.request_id for request in resolve(SamplingParams(n=3))] == ["r-0", "r-1", "r-2"]


def test_choices_of_a_seeded_request_differ_and_come_again() -> None:
    first, again = (resolve(SamplingParams(n=4, seed=7)) for _ in range(2))
    seeds = [request.sampling.seed for request in first]
    assert len(set(seeds)) == 4
    assert first == again
    assert resolve(SamplingParams(seed=7))[0].sampling.seed == seeds[0] == 7


def test_without_a_seed_every_request_differs() -> None:
    for seed in (None, -1):
        params = SamplingParams(seed=seed)
        assert resolve(params)[0].sampling.seed != resolve(params)[0].sampling.seed


def test_greedy_with_several_choices_is_allowed() -> None:
    assert len(resolve(SamplingParams(temperature=0, n=2))) == 2


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids", "logit_bias"])
@pytest.mark.parametrize("token_id", [512, -1, 99_999_999])
def test_ids_outside_the_vocabulary_are_refused_by_name(name: str, token_id: int) -> None:
    value = {token_id: 1.0} if name == "logit_bias" else [token_id]
    with pytest.raises(RequestError) as caught:
        resolve(SamplingParams(**{name: value}))  # type: ignore[arg-type]
    assert caught.value.param == name


@pytest.mark.parametrize("prompt", [[], [512], [-1], [True], [1.0]])
def test_bad_prompts_are_refused(prompt: list[Any]) -> None:
    with pytest.raises(RequestError) as caught:
        resolve_requests(SamplingParams(), prompt, request_id="r", tokenizer=stories(), limits=LIMITS)
    assert caught.value.param == "prompt"


def test_the_context_error_names_the_limit_and_both_counts() -> None:
    with pytest.raises(ContextLengthExceeded, match=r"512.*500.*600") as caught:
        resolve(SamplingParams(max_tokens=600), num_prompt_tokens=500)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "decided"),
    [(4, None, 508), (511, None, 1), (511, 1, 1), (512, 0, 0), (4, 508, 508)],
)
def test_lengths_that_fit(num_prompt_tokens: int, max_tokens: int | None, decided: int) -> None:
    assert resolve(SamplingParams(max_tokens=max_tokens), num_prompt_tokens)[0].max_tokens == decided


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "param"),
    [(512, None, "prompt"), (513, 0, "prompt"), (512, 1, "prompt"), (4, 509, "max_tokens"), (1024, 5, "prompt")],
)
def test_lengths_that_do_not_fit(num_prompt_tokens: int, max_tokens: int | None, param: str) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        resolve(SamplingParams(max_tokens=max_tokens), num_prompt_tokens)
    assert caught.value.param == param


def test_min_tokens_must_fit_the_rest_of_the_context() -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        resolve(SamplingParams(max_tokens=None, min_tokens=509))
    assert caught.value.param == "min_tokens"


def test_ignore_eos_drops_the_whole_list_but_not_stop_ids() -> None:
    request = resolve(SamplingParams(ignore_eos=True, stop_token_ids=[2]))[0]
    assert (request.eos_token_ids, request.stop_token_ids) == (frozenset(), {2})
    assert resolve(SamplingParams())[0].eos_token_ids == {1, 2}


def test_a_stop_string_that_spells_a_special_token_stops_at_its_id() -> None:
    request = resolve(SamplingParams(stop=["</s>", "he"], ignore_eos=True))[0]
    assert request.stop_token_ids == {2}
    assert request.stop == ("</s>", "he")


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_logprobs_are_limited(name: str) -> None:
    wide = dataclasses.replace(LIMITS, max_logprobs=512)
    field = f"num_{name}"
    assert getattr(resolve(SamplingParams(**{name: 0}))[0], field) == 0  # type: ignore[arg-type]
    assert getattr(resolve(SamplingParams(**{name: 20}))[0], field) == 20  # type: ignore[arg-type]
    assert getattr(resolve(SamplingParams(**{name: -1}), limits=wide)[0], field) == 512  # type: ignore[arg-type]
    for count in (21, -1):
        with pytest.raises(RequestError) as caught:
            resolve(SamplingParams(**{name: count}))  # type: ignore[arg-type]
        assert caught.value.param == name


def test_bad_words_cover_the_word_at_a_start_after_a_space_and_inside_a_word() -> None:
    for tokenizer in (stories(), byte_level()):
        requests = resolve_requests(
            SamplingParams(bad_words=["the"]), [5], request_id="r", tokenizer=tokenizer, limits=LIMITS
        )
        spelled = {
            tokenizer.decode([20, *ids])[len(tokenizer.decode([20])) :] for ids in requests[0].sampling.bad_words_ids
        }
        assert {"the", " the"} <= spelled


@given(st.integers(-1, 10**6))
def test_top_k_is_off_or_smaller_than_the_vocabulary(top_k: int) -> None:
    decided = resolve(SamplingParams(top_k=top_k))[0].sampling.top_k
    assert decided == (top_k if 0 < top_k < 512 else 0)
