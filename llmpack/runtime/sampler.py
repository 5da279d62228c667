"""Chooses the next token of each row of logits.

The order is vLLM V1's, with every step in float32:

    raw logits --> logprobs are reported from here
        |
    allowed_token_ids -> bad_words -> min_tokens mask -> logit_bias          (`SamplerState.edit`)
        -> repetition, frequency, presence penalties
        |
    temperature 0: argmax, the lowest id on ties
    otherwise: / temperature -> min_p -> top_k -> top_p (keeps the crossing token) -> one uniform number

A row's result depends on that row and its request only: each row goes through the same operations whoever shares the
batch, and its random number is a function of (seed, output position). The number of tokens that survive top_k is
exactly k, ties broken by the lowest id, so top_k=1 equals greedy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llmpack.errors import RequestError
from llmpack.runtime.logprobs import prompt_logprobs, token_logprobs
from llmpack.runtime.ranking import Indices, Scores, best_indices
from llmpack.runtime.request import GenerationRequest, Logits, Sampling, TokenLogprobs
from llmpack.runtime.rng import uniform

__all__ = ["SampledToken", "Sampler", "SamplerState", "prompt_logprobs"]

logger = logging.getLogger(__name__)

_NEVER = np.float32(-np.inf)
_BLOCK_LEN = 256
_ROUNDING_SLACK = 0.01


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The outcome for one row.

    Attributes:
        token_id: The chosen token; -1 when `error` is set.
        logprobs: Of the raw logits, when the request asked for them.
        error: Why no token could be chosen for this row (nothing allowed, or logits that are not numbers). The
            engine then ends this request alone; the other rows of the batch have their tokens.
        error_param: The request's field that allows no token; None when the request is not to blame.
    """

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    error_param: str | None = None


class SamplerState:
    """What sampling must remember of one sequence.

    Costs two [V] arrays when penalties are on, else a few numbers.

    Args:
        request: The sequence's request.
        vocab_size: Width of the logits, V.
    """

    __slots__ = (
        "_allowed_ids",
        "_always_edits",
        "_bias_ids",
        "_bias_values",
        "_counts",
        "_held_ids",
        "_output_ids",
        "_seen",
        "request",
    )

    def __init__(self, request: GenerationRequest, vocab_size: int) -> None:
        sampling = request.sampling
        self.request = request
        self._output_ids: list[int] = []
        self._bias_ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.intp)
        self._bias_values = np.fromiter(sampling.logit_bias.values(), dtype=np.float32)
        self._held_ids = np.array(sorted(request.eos_token_ids | request.stop_token_ids), dtype=np.intp)
        penalties = (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        self._counts: npt.NDArray[np.int32] | None = None
        self._seen: npt.NDArray[np.bool_] | None = None
        if penalties != (1.0, 0.0, 0.0):
            self._counts = np.zeros(vocab_size, dtype=np.int32)
            self._seen = np.zeros(vocab_size, dtype=np.bool_)
            self._seen[list(request.prompt_ids)] = True
        allowed = sampling.allowed_token_ids
        self._allowed_ids = None if allowed is None else np.array(allowed, dtype=np.intp)
        masks = allowed is not None or bool(sampling.bad_words_ids)
        self._always_edits = masks or self._bias_ids.size > 0 or self._counts is not None

    @property
    def num_output_tokens(self) -> int:
        """Tokens appended so far; the position of the next random number."""
        return len(self._output_ids)

    @property
    def edits_logits(self) -> bool:
        """Whether `edit` would change the logits of the next token."""
        return self._always_edits or self._holds_stops

    @property
    def forbidding_field(self) -> str | None:
        """The field of the request that forbids most of the tokens, now; None when none is forbidden."""
        sampling = self.request.sampling
        if sampling.allowed_token_ids is not None:
            return "allowed_token_ids"
        if sampling.bad_words_ids:
            return "bad_words"
        return "min_tokens" if self._holds_stops else None

    @property
    def _holds_stops(self) -> bool:
        return len(self._output_ids) < self.request.min_tokens and self._held_ids.size > 0

    def append(self, token_id: int) -> None:
        """Records the token that now stands at the next output position."""
        self._output_ids.append(token_id)
        if self._counts is not None and self._seen is not None:
            self._counts[token_id] += 1
            self._seen[token_id] = True

    def edit(self, logits: Scores) -> Scores:
        """A changed copy of one row of raw logits, [V]: masks, bias and penalties in the documented order."""
        scores = self._only_allowed(logits)
        scores[self._forbidden_by_bad_words()] = _NEVER
        if self._holds_stops:
            scores[self._held_ids] = _NEVER
        scores[self._bias_ids] += self._bias_values
        self._penalise(scores)
        return scores

    def _only_allowed(self, logits: Scores) -> Scores:
        if self._allowed_ids is None:
            return logits.copy()
        scores = np.full_like(logits, _NEVER)
        scores[self._allowed_ids] = logits[self._allowed_ids]
        return scores

    def _forbidden_by_bad_words(self) -> list[int]:
        """Last ids of the words whose other ids are the end of the output."""
        output = self._output_ids
        words = self.request.sampling.bad_words_ids
        # A slice that would begin before the output is shorter than the word and so never equals it.
        return [word[-1] for word in words if output[len(output) - len(word) + 1 :] == list(word[:-1])]

    def _penalise(self, scores: Scores) -> None:
        if self._counts is None or self._seen is None:
            return
        sampling = self.request.sampling
        if sampling.repetition_penalty != 1.0:
            ids = np.flatnonzero(self._seen)
            penalty = np.float32(sampling.repetition_penalty)
            values = scores[ids]
            scores[ids] = np.where(values > 0, values / penalty, values * penalty)
        ids = np.flatnonzero(self._counts)
        scores[ids] -= np.float32(sampling.frequency_penalty) * self._counts[ids].astype(np.float32)
        scores[ids] -= np.float32(sampling.presence_penalty)


class Sampler:
    """Samples a batch of rows.

    Args:
        vocab_size: Width of the logits, V.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def sample(self, logits: Logits, states: Sequence[SamplerState]) -> list[SampledToken]:
        """The next token of each row; appends nothing and leaves `logits` as they are.

        A batch of greedy rows with nothing to edit and no logprobs costs one argmax.

        Args:
            logits: [N, V] raw logits.
            states: One state per row.
        """
        assert logits.shape == (len(states), self.vocab_size), f"logits {logits.shape} for {len(states)} states"
        if all(_is_plain_greedy(state) for state in states):
            return _argmax_rows(logits)
        return [_sample_row(row, state) for row, state in zip(logits, states, strict=True)]


def _is_plain_greedy(state: SamplerState) -> bool:
    request = state.request
    return request.sampling.temperature == 0.0 and request.num_logprobs is None and not state.edits_logits


def _argmax_rows(logits: Logits) -> list[SampledToken]:
    ids = logits.argmax(axis=1)
    # argmax lands on NaN when a row has one, so the best value tells whether the row can be trusted.
    finite = np.isfinite(logits[np.arange(len(ids)), ids])
    if finite.all():
        return [SampledToken(token_id) for token_id in ids.tolist()]
    rows = zip(ids.tolist(), finite.tolist(), strict=True)
    return [SampledToken(token_id) if good else _failed(_not_finite()) for token_id, good in rows]


def _sample_row(logits: Scores, state: SamplerState) -> SampledToken:
    request = state.request
    try:
        token_id = _choose(state.edit(logits) if state.edits_logits else logits, state)
        wanted = request.num_logprobs
        return SampledToken(token_id, None if wanted is None else token_logprobs(logits, token_id, wanted))
    except RequestError as error:
        return _failed(error)
    except Exception:  # whatever is wrong with one row must not end the others
        logger.exception("sampling a token of %s failed", request.request_id)
        return SampledToken(-1, error="sampling a token failed")


def _failed(error: RequestError) -> SampledToken:
    return SampledToken(-1, error=str(error), error_param=error.param)


def _choose(scores: Scores, state: SamplerState) -> int:
    best = int(scores.argmax())
    if not np.isfinite(scores[best]):
        raise _why_unusable(scores, state)
    sampling = state.request.sampling
    if sampling.temperature == 0.0:
        return best
    return draw(scores, sampling, uniform(sampling.seed, state.num_output_tokens))


def _why_unusable(scores: Scores, state: SamplerState) -> RequestError:
    """The request is to blame only if all that is left are tokens which it forbids."""
    param = state.forbidding_field
    if param is None or not np.isneginf(scores).all():
        return _not_finite()
    return RequestError(
        "no token is left to choose from",
        param=param,
        next_step="Relax allowed_token_ids, bad_words, stop_token_ids or min_tokens.",
    )


def _not_finite() -> RequestError:
    return RequestError("the model's logits are not finite numbers", next_step="Check the model's proof.")


def draw(scores: Scores, sampling: Sampling, number: float) -> int:
    """The token at `number` of the distribution that temperature, min_p, top_k and top_p leave.

    Args:
        scores: [V] edited logits, the largest of them finite.
        sampling: Its temperature must not be 0.
        number: In [0, 1).
    """
    # With the peak taken off, only hopeless scores can overflow, and minus infinity is right for them.
    with np.errstate(over="ignore"):
        scaled = (scores - scores.max()) / np.float32(sampling.temperature)
    ids = _surviving_ids(scaled, sampling)
    index = _pick(np.exp(scaled if ids is None else scaled[ids]), number)
    return index if ids is None else int(ids[index])


def _pick(weights: Scores, number: float) -> int:
    """The index at `number` of the way through the weights, one of positive weight.

    Sums in float64, by blocks first: a running sum over [V] would cost more than all other steps together.
    """
    starts = np.arange(0, weights.size, _BLOCK_LEN)
    blocks = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    target = number * blocks[-1]
    block = _first_above(blocks, target)
    start = block * _BLOCK_LEN
    inside = np.cumsum(weights[start : start + _BLOCK_LEN], dtype=np.float64)
    return start + _first_above(inside, target - (blocks[block - 1] if block else 0.0))


def _first_above(running: npt.NDArray[np.float64], target: float) -> int:
    """The first index whose running sum exceeds the target.

    Rounding may raise the target to the whole sum; the last index that adds anything is then meant.
    """
    last = np.searchsorted(running, running[-1], side="left")
    return int(min(np.searchsorted(running, target, side="right"), last))


def _surviving_ids(scaled: Scores, sampling: Sampling) -> Indices | None:
    """Ids that may be drawn after min_p, top_k and top_p; None for all of them."""
    ids: Indices | None = None
    if sampling.min_p > 0.0:
        # p >= min_p * p_max, in logs and with the peak at 0.
        ids = np.flatnonzero(scaled >= np.float32(math.log(sampling.min_p)))
    count = scaled.size if ids is None else ids.size
    if 0 < sampling.top_k < count:
        ids = _subset(ids, best_indices(scaled if ids is None else scaled[ids], sampling.top_k))
    if sampling.top_p < 1.0:
        ids = _subset(ids, _nucleus(scaled if ids is None else scaled[ids], sampling.top_p))
    return ids


def _subset(ids: Indices | None, chosen: Indices) -> Indices:
    return chosen if ids is None else ids[chosen]


def _nucleus(scaled: Scores, top_p: float) -> Indices:
    """Indices of the fewest best entries whose probability reaches top_p, best first; the peak is at 0."""
    weights = np.exp(scaled)
    total = float(weights.sum(dtype=np.float64))
    # Entries this small, all V of them together, weigh less than 1 - top_p: they need not be sorted.
    floor = math.log(max(1.0 - top_p, 1e-12) * total / scaled.size) - _ROUNDING_SLACK
    candidates = np.flatnonzero(scaled >= np.float32(min(floor, 0.0)))
    order = candidates[best_indices(scaled[candidates], candidates.size)]
    mass = np.cumsum(weights[order], dtype=np.float64)
    return order[: int(np.searchsorted(mass, top_p * total, side="left")) + 1]
