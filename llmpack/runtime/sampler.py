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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmpack.errors import RequestError
from llmpack.runtime.drawing import draw
from llmpack.runtime.logprobs import prompt_logprobs, token_logprobs
from llmpack.runtime.ranking import Scores
from llmpack.runtime.request import GenerationRequest, Logits, TokenLogprobs
from llmpack.runtime.rng import uniform
from llmpack.runtime.token_counts import TokenCounts

__all__ = ["SampledToken", "Sampler", "SamplerState", "prompt_logprobs"]

logger = logging.getLogger(__name__)

_NEVER = np.float32(-np.inf)


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

    Costs two [V] arrays when penalties are on, else a few numbers. What a step costs does not grow with the output.

    Args:
        request: The sequence's request.
        vocab_size: Width of the logits, V.
    """

    __slots__ = (
        "_allowed_ids",
        "_always_edits",
        "_bias_ids",
        "_bias_values",
        "_held_ids",
        "_output_counts",
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
        self._seen: TokenCounts | None = None
        self._output_counts: TokenCounts | None = None
        if penalties != (1.0, 0.0, 0.0):
            self._seen = TokenCounts(vocab_size, request.prompt_ids)
            self._output_counts = TokenCounts(vocab_size)
        allowed = sampling.allowed_token_ids
        self._allowed_ids = None if allowed is None else np.array(allowed, dtype=np.intp)
        masks = allowed is not None or bool(sampling.bad_words_ids)
        self._always_edits = masks or self._bias_ids.size > 0 or self._seen is not None

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
        if self._seen is not None and self._output_counts is not None:
            self._seen.add(token_id)
            self._output_counts.add(token_id)

    def edit(self, logits: Scores, buffer: Scores | None = None) -> Scores:
        """A changed copy of one row of raw logits, [V]: masks, bias and penalties in the documented order.

        Args:
            logits: [V], left as they are.
            buffer: [V] for the copy; a new one unless given.
        """
        scores = np.empty_like(logits) if buffer is None else buffer
        self._copy_allowed(logits, scores)
        scores[self._forbidden_by_bad_words()] = _NEVER
        if self._holds_stops:
            scores[self._held_ids] = _NEVER
        scores[self._bias_ids] += self._bias_values
        self._penalise(scores)
        return scores

    def _copy_allowed(self, logits: Scores, scores: Scores) -> None:
        if self._allowed_ids is None:
            np.copyto(scores, logits)
        else:
            scores.fill(_NEVER)
            scores[self._allowed_ids] = logits[self._allowed_ids]

    def _forbidden_by_bad_words(self) -> list[int]:
        """Last ids of the words whose other ids are the end of the output."""
        output = self._output_ids
        words = self.request.sampling.bad_words_ids
        # A slice that would begin before the output is shorter than the word and so never equals it.
        return [word[-1] for word in words if output[len(output) - len(word) + 1 :] == list(word[:-1])]

    def _penalise(self, scores: Scores) -> None:
        if self._seen is None or self._output_counts is None:
            return
        sampling = self.request.sampling
        if sampling.repetition_penalty != 1.0:
            ids = self._seen.ids
            penalty = np.float32(sampling.repetition_penalty)
            values = scores[ids]
            scores[ids] = np.where(values > 0, values / penalty, values * penalty)
        ids, counts = self._output_counts.ids, self._output_counts.counts
        scores[ids] -= np.float32(sampling.frequency_penalty) * counts.astype(np.float32)
        scores[ids] -= np.float32(sampling.presence_penalty)


class Sampler:
    """Samples a batch of rows.

    Args:
        vocab_size: Width of the logits, V.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._edited = np.empty(vocab_size, dtype=np.float32)
        self._buffer = np.empty(vocab_size, dtype=np.float32)

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
        return [self._sample_row(row, state) for row, state in zip(logits, states, strict=True)]

    def _sample_row(self, logits: Scores, state: SamplerState) -> SampledToken:
        request = state.request
        try:
            token_id = self._choose(state.edit(logits, self._edited) if state.edits_logits else logits, state)
            wanted = request.num_logprobs
            logprobs = None if wanted is None else token_logprobs(logits, token_id, wanted, self._buffer)
            return SampledToken(token_id, logprobs)
        except RequestError as error:
            return _failed(error)
        except Exception:  # whatever is wrong with one row must not end the others
            logger.exception("sampling a token of %s failed", request.request_id)
            return SampledToken(-1, error="sampling a token failed")

    def _choose(self, scores: Scores, state: SamplerState) -> int:
        best = int(scores.argmax())
        if not np.isfinite(scores[best]):
            raise _why_unusable(scores, state)
        sampling = state.request.sampling
        if sampling.temperature == 0.0:
            return best
        return draw(scores, sampling, uniform(sampling.seed, state.num_output_tokens), self._buffer)


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


def _failed(error: RequestError) -> SampledToken:
    return SampledToken(-1, error=str(error), error_param=error.param)


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
