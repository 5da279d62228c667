from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.errors import RequestError
from llmpack.runtime.drawing import draw
from llmpack.runtime.ranking import best_indices
from llmpack.runtime.request import GenerationRequest, Logits, Sampling
from llmpack.runtime.rng import choice_seed, philox, uniform
from llmpack.runtime.sampler import Sampler, SamplerState, prompt_logprobs
from llmpack.runtime.token_counts import TokenCounts

V = 61
NONE = frozenset[int]()


def request_of(sampling: Sampling, **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        **{"request_id": "r", "prompt_ids": (3, 4), "sampling": sampling, "max_tokens": 99, **fields}
    )


def state_of(sampling: Sampling, output: tuple[int, ...] = (), **fields: Any) -> SamplerState:
    state = SamplerState(request_of(sampling, **fields), V)
    for token_id in output:
        state.append(token_id)
    return state


def random_logits(num_rows: int, seed: int = 0, width: int = V) -> Logits:
    # Rounded, so that ties occur.
    return np.round(np.random.default_rng(seed).normal(0, 2, (num_rows, width)), 1).astype(np.float32)


def greedy_token(logits: Logits, state: SamplerState) -> int:
    return Sampler(V).sample(logits[None], [state])[0].token_id


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 20]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    presence_penalty=st.sampled_from([0.0, 1.5]),
    frequency_penalty=st.sampled_from([0.0, -1.5]),
    logit_bias=st.dictionaries(st.integers(0, V - 1), st.floats(-100, 100, width=32), max_size=3),
    allowed_token_ids=st.none() | st.lists(st.integers(0, V - 1), min_size=1, max_size=9).map(tuple),
    bad_words_ids=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    seed=st.integers(0, 2**64 - 1),
)


@st.composite
def states(draw: st.DrawFn) -> SamplerState:
    return state_of(
        draw(samplings),
        tuple(draw(st.lists(st.integers(0, 9), max_size=5))),
        num_logprobs=draw(st.sampled_from([None, 0, 3])),
        min_tokens=draw(st.sampled_from([0, 3])),
        eos_token_ids=draw(st.sampled_from([NONE, frozenset({1, 2})])),
    )


@given(rows=st.lists(states(), min_size=1, max_size=6), seed=st.integers(0, 99), shuffle=st.randoms())
def test_a_row_does_not_depend_on_the_others(rows: list[SamplerState], seed: int, shuffle: Any) -> None:
    logits, sampler = random_logits(len(rows), seed), Sampler(V)
    before = logits.copy()
    together = sampler.sample(logits, rows)
    assert np.array_equal(logits, before)
    order = list(range(len(rows)))
    shuffle.shuffle(order)
    assert sampler.sample(logits[order], [rows[row] for row in order]) == [together[row] for row in order]
    assert [sampler.sample(logits[row : row + 1], [rows[row]])[0] for row in range(len(rows))] == together


@given(state=states(), seed=st.integers(0, 99))
def test_a_choice_obeys_every_constraint(state: SamplerState, seed: int) -> None:
    logits, sampling = random_logits(1, seed), state.request.sampling
    sampled = Sampler(V).sample(logits, [state])[0]
    edited = state.edit(logits[0])
    if sampled.error is not None:
        assert np.isneginf(edited).all()
        return
    assert np.isfinite(edited[sampled.token_id])
    assert sampling.allowed_token_ids is None or sampled.token_id in sampling.allowed_token_ids
    better = int(np.count_nonzero(edited > edited[sampled.token_id]))
    if sampling.top_k:
        assert better < sampling.top_k
    if sampling.temperature == 0.0 or sampling.top_k == 1 or sampling.min_p == 1.0 or sampling.top_p == 1e-6:
        assert better == 0


def test_a_plain_greedy_batch_takes_the_lowest_id_of_the_best() -> None:
    logits = np.zeros((2, V), dtype=np.float32)
    logits[1, [7, 9]] = 1.0
    rows = [state_of(Sampling(temperature=0.0)) for _ in range(2)]
    assert [sampled.token_id for sampled in Sampler(V).sample(logits, rows)] == [0, 7]


@given(seed=st.integers(0, 999), temperature=st.sampled_from([0.01, 1.0, 2.0]))
def test_top_k_1_is_greedy_to_the_tie(seed: int, temperature: float) -> None:
    logits = np.round(random_logits(1, seed)[0])
    sampling = Sampling(temperature=temperature, top_k=1, seed=seed)
    assert greedy_token(logits, state_of(sampling)) == greedy_token(logits, state_of(Sampling(temperature=0.0)))


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    logits = random_logits(40, 1)

    def tokens(seed: int, neighbours: int) -> list[int]:
        rows = [state_of(Sampling(seed=seed)), *(state_of(Sampling(seed=9)) for _ in range(neighbours))]
        chosen = []
        for step in range(40):
            batch = np.repeat(logits[step : step + 1], len(rows), axis=0)
            sampled = Sampler(V).sample(batch, rows)
            for row, one in zip(rows, sampled, strict=True):
                row.append(one.token_id)
            chosen.append(sampled[0].token_id)
        return chosen

    assert tokens(5, 0) == tokens(5, 3)
    assert tokens(5, 0) != tokens(6, 0)


def chi_square(sampling: Sampling, expected: list[float], draws: int = 4_000) -> float:
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], dtype=np.float32))
    counts = Counter(draw(logits[0], sampling, uniform(sampling.seed, position)) for position in range(draws))
    assert sum(counts[token_id] for token_id, share in enumerate(expected) if share) == draws
    return sum((counts[i] - draws * share) ** 2 / (draws * share) for i, share in enumerate(expected) if share)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(seed=1), [0.4, 0.3, 0.2, 0.1]),
        (Sampling(seed=2, temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (Sampling(seed=3, top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (Sampling(seed=4, top_p=0.69), [4 / 7, 3 / 7, 0, 0]),
        (Sampling(seed=4, top_p=0.71), [4 / 9, 3 / 9, 2 / 9, 0]),
        (Sampling(seed=5, min_p=0.4), [4 / 9, 3 / 9, 2 / 9, 0]),
        # top_p counts what top_k leaves: 4/7 alone reaches 0.5.
        (Sampling(seed=6, top_k=2, top_p=0.5), [1, 0, 0, 0]),
        # min_p comes after the temperature: (0.1 / 0.4) ** 0.5 is above 0.4.
        (Sampling(seed=7, temperature=2.0, min_p=0.4), list(np.sqrt([4, 3, 2, 1]) / np.sqrt([4, 3, 2, 1]).sum())),
    ],
)
def test_tokens_follow_their_distribution(sampling: Sampling, expected: list[float]) -> None:
    # The 0.999 quantile of chi-square with 3 degrees of freedom.
    assert chi_square(sampling, expected) < 16.27


def test_top_p_keeps_at_least_one_token_and_the_one_that_crosses() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.25], dtype=np.float32))
    assert {draw(logits, Sampling(top_p=1e-9), n / 100) for n in range(100)} == {0}
    assert {draw(logits, Sampling(top_p=0.6), n / 100) for n in range(100)} == {0, 1}


def test_a_flat_distribution_is_cut_by_id() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    assert {draw(logits, Sampling(top_p=0.5), n / 1000) for n in range(1000)} == set(range(500))


@given(st.integers(0, 999), st.floats(1e-6, 1, exclude_max=True), st.sampled_from([0.1, 3.0]))
def test_top_p_keeps_the_tokens_of_a_full_sort(seed: int, top_p: float, spread: float) -> None:
    logits = np.random.default_rng(seed).normal(0, spread, 300).astype(np.float32)
    order = np.argsort(-logits, kind="stable")
    mass = np.cumsum(np.exp(logits[order].astype(np.float64)))
    kept = int(np.count_nonzero(mass < top_p * mass[-1] * (1 - 1e-6))) + 1
    # The last token that can be drawn is the crossing one.
    assert draw(logits, Sampling(top_p=top_p), 1 - 2.0**-53) in order[kept - 1 : kept + 1]


def test_a_wide_row_is_drawn_like_a_running_sum_over_it() -> None:
    logits = random_logits(1, width=3000)[0]
    mass = np.cumsum(np.exp(logits.astype(np.float64)))
    for number in np.random.default_rng(0).random(200):
        exact = int(np.searchsorted(mass, number * mass[-1], side="right"))
        near = np.searchsorted(mass, [mass[-1] * (number - 1e-6), mass[-1] * (number + 1e-6)], side="right")
        assert near[0] <= draw(logits, Sampling(), float(number)) <= max(near[1], exact)


def test_the_largest_number_never_draws_an_impossible_token() -> None:
    logits = np.array([0.0, 0.0, -np.inf, -3e38], dtype=np.float32)
    assert draw(logits, Sampling(), 1 - 2.0**-53) == 1
    assert draw(logits, Sampling(temperature=0.01), 0.0) == 0


def test_allowed_token_ids_mask_all_others() -> None:
    logits = random_logits(1)[0]
    logits[5] = -50
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, allowed_token_ids=(5,)))) == 5


def test_bad_words_block_their_last_token_only_after_the_others() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[9] = 5
    sampling = Sampling(temperature=0.0, bad_words_ids=((7, 8, 9),))
    assert greedy_token(logits, state_of(sampling, (7, 8))) == 0
    for output in ((), (8,), (7,), (8, 7), (7, 8, 1)):
        assert greedy_token(logits, state_of(sampling, output)) == 9
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, bad_words_ids=((9,),)))) == 0


def test_min_tokens_hold_off_eos_and_stop_ids_until_they_are_reached() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[[1, 2]] = 5, 4
    fields: dict[str, Any] = {
        "min_tokens": 2,
        "eos_token_ids": frozenset({1}),
        "stop_token_ids": frozenset({2}),
    }
    sampling = Sampling(temperature=0.0)
    assert greedy_token(logits, state_of(sampling, (), **fields)) == 0
    assert greedy_token(logits, state_of(sampling, (5,), **fields)) == 0
    assert greedy_token(logits, state_of(sampling, (5, 5), **fields)) == 1


def test_logit_bias_is_added() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[8] = 1.5
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, logit_bias={4: 1.0}))) == 8
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, logit_bias={4: 2.0}))) == 4
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, logit_bias={8: -100.0}))) == 0


def test_repetition_penalty_counts_the_prompt_and_the_others_do_not() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[4], logits[7] = 3.0, 2.5  # 4 is in the prompt
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, repetition_penalty=1000.0))) == 7
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, presence_penalty=2.0))) == 4
    assert greedy_token(logits, state_of(Sampling(temperature=0.0, frequency_penalty=2.0))) == 4


def test_penalties_are_the_documented_arithmetic() -> None:
    logits = np.zeros(V, dtype=np.float32)
    logits[[3, 5, 6]] = 2.0, -2.0, 1.0
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    edited = state_of(sampling, (5, 5, 6)).edit(logits)
    assert edited[[3, 5, 6, 7]].tolist() == [1.0, -4.0 - 0.25 - 1.0, 0.5 - 0.25 - 0.5, 0.0]


def test_a_row_without_a_legal_token_fails_alone() -> None:
    impossible = Sampling(allowed_token_ids=(5,), bad_words_ids=((5,),))
    for temperature in (0.0, 1.0):
        rows = [state_of(Sampling(temperature=0.0)), state_of(replace(impossible, temperature=temperature))]
        fine, failed = Sampler(V).sample(random_logits(2), rows)
        assert (fine.error, failed.token_id) == (None, -1)
        assert fine.token_id >= 0
        assert "allowed_token_ids" in (failed.error or "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"sampling": Sampling(allowed_token_ids=(2,)), "min_tokens": 1, "eos_token_ids": frozenset({2})},
         "allowed_token_ids"),
        ({"sampling": Sampling(bad_words_ids=tuple((token_id,) for token_id in range(V)))}, "bad_words"),
        ({"sampling": Sampling(), "min_tokens": 1, "stop_token_ids": frozenset(range(V))}, "min_tokens"),
    ],
)  # fmt: skip
def test_the_field_that_forbids_every_token_is_named(fields: dict[str, Any], param: str) -> None:
    state = SamplerState(request_of(**fields), V)
    (failed,) = Sampler(V).sample(random_logits(1), [state])
    assert (failed.token_id, failed.error_param) == (-1, param)
    broken = np.full((1, V), np.nan, dtype=np.float32)
    assert Sampler(V).sample(broken, [state_of(Sampling(allowed_token_ids=(2,)))])[0].error_param is None


def test_an_unforeseen_error_of_one_row_leaves_the_others_their_tokens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def edit(*_given: object) -> Logits:
        raise ZeroDivisionError

    monkeypatch.setattr(SamplerState, "edit", edit)
    states = [state_of(Sampling(temperature=0.0)), state_of(Sampling(logit_bias={1: 1.0}))]
    fine, failed = Sampler(V).sample(random_logits(2), states)
    assert fine.error is None
    assert (failed.token_id, failed.error, failed.error_param) == (-1, "sampling a token failed", None)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_bad_logits_fails_alone(bad: float, temperature: float) -> None:
    logits = random_logits(3)
    logits[1, 30] = bad
    sampled = Sampler(V).sample(logits, [state_of(Sampling(temperature=temperature)) for _ in range(3)])
    assert [one.error is None for one in sampled] == [True, False, True]
    assert "finite" in (sampled[1].error or "")


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = random_logits(1, 3)
    sampling = Sampling(temperature=0.01, logit_bias={11: 100.0}, seed=1)
    sampled = Sampler(V).sample(logits, [state_of(sampling, num_logprobs=4)])[0]
    exact = logits[0].astype(np.float64)
    exact -= np.log(np.exp(exact).sum())
    assert sampled.logprobs is not None
    assert (sampled.token_id, sampled.logprobs.token_id) == (11, 11)
    assert sampled.logprobs.logprob == pytest.approx(exact[11], abs=1e-5)
    assert sampled.logprobs.top_ids == tuple(np.argsort(-exact, kind="stable")[:4].tolist())
    assert sampled.logprobs.top_logprobs == pytest.approx(sorted(exact, reverse=True)[:4], abs=1e-5)
    assert sampled.logprobs.rank == list(np.argsort(-logits[0], kind="stable")).index(11) + 1


@pytest.mark.parametrize(("asked", "listed"), [(None, None), (0, 0), (1, 1), (V, V), (V + 5, V)])
def test_as_many_logprobs_as_asked_for(asked: int | None, listed: int | None) -> None:
    sampled = Sampler(V).sample(random_logits(1), [state_of(Sampling(), num_logprobs=asked)])[0]
    assert (None if sampled.logprobs is None else len(sampled.logprobs.top_ids)) == listed


def test_the_best_token_and_its_alternative_have_the_same_logprob() -> None:
    for seed in range(20):
        logits = random_logits(1, seed)
        sampled = Sampler(V).sample(logits, [state_of(Sampling(temperature=0.0), num_logprobs=1)])[0]
        assert sampled.logprobs is not None
        assert sampled.logprobs.top_logprobs == (sampled.logprobs.logprob,)
        assert sampled.logprobs.rank == 1


def test_logprobs_are_finite() -> None:
    logits = np.full((1, V), -np.inf, dtype=np.float32)
    logits[0, 0] = 0.0
    entry = prompt_logprobs(logits, [5], 2)[0]
    assert (entry.logprob, entry.top_logprobs, entry.rank) == (-9999.0, (0.0, -9999.0), 6)


def test_prompt_logprobs_give_one_entry_per_position() -> None:
    logits = random_logits(3)
    entries = prompt_logprobs(logits, [4, 5, 6], 2)
    assert [entry.token_id for entry in entries] == [4, 5, 6]
    assert entries[1] == prompt_logprobs(logits[1:2], [5], 2)[0]
    logits[2, 0] = np.nan
    with pytest.raises(RequestError, match="finite"):
        prompt_logprobs(logits, [4, 5, 6], 2)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -np.inf]), min_size=1, max_size=30), st.integers(0, 31))
def test_best_indices_are_those_of_a_stable_sort(values: list[float], count: int) -> None:
    scores = np.array(values, dtype=np.float32)
    assert best_indices(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


@pytest.mark.parametrize("width", [640, 1000, 4099])
@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_the_best_of_a_wide_row_are_found_among_few(width: int, decimals: int) -> None:
    rng = np.random.default_rng(width + decimals)
    for count in (1, 2, 5, 50, width // 2, width):
        scores = np.round(rng.normal(0, 2, width), decimals).astype(np.float32)
        scores[rng.integers(0, width, 9)] = -np.inf
        assert best_indices(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


@given(st.lists(st.integers(0, 200), max_size=400))
def test_token_counts_list_what_occurred(token_ids: list[int]) -> None:
    counted = TokenCounts(201, token_ids[:5])
    for token_id in token_ids[5:]:
        counted.add(token_id)
    assert dict(zip(counted.ids.tolist(), counted.counts.tolist(), strict=True)) == dict(Counter(token_ids))


@given(st.integers(0, 2**256 - 2), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_philox_gives_the_words_of_numpys_generator(counter: int, key0: int, key1: int) -> None:
    # numpy counts up before it generates.
    theirs = np.random.Philox(counter=counter, key=key0 | key1 << 64).random_raw(4).tolist()
    assert list(philox(counter + 1, (key0, key1))) == theirs


def test_uniform_numbers_lie_in_the_unit_interval_and_fill_it() -> None:
    numbers = [uniform(7, position) for position in range(4000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert math.isclose(sum(numbers) / 4000, 0.5, abs_tol=0.02)


def test_choices_have_seeds_of_their_own() -> None:
    seeds = {choice_seed(seed, choice) for seed in (0, 1, 2**64 - 1) for choice in range(50)}
    assert len(seeds) == 150
    assert choice_seed(-1, 0) == 2**64 - 1
