"""Log-probabilities of the raw logits: before penalties, masks and temperature, float32, natural log.

Every value passes through the same float32 operations, so the log-probability of a token and its entry in the list
of alternatives are equal to the last bit (evaluation harnesses compare them with `==`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmpack.errors import RequestError
from llmpack.runtime.ranking import Scores, best_indices
from llmpack.runtime.request import TokenLogprobs

MIN_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot carry. Source: OpenAI API reference, chat completion logprobs."""


def token_logprobs(logits: Scores, token_id: int, num_top: int, buffer: Scores | None = None) -> TokenLogprobs:
    """What one position says about its token.

    Args:
        logits: [V] raw logits.
        token_id: The token that stands at the position.
        num_top: How many alternatives to list; the token itself is one of them when it ranks high enough.
        buffer: [V] to be written over; a new one unless given.

    Raises:
        RequestError: The logits hold NaN or infinity.
    """
    peak = logits.max()
    if not np.isfinite(peak):
        raise RequestError("the model's logits are not finite numbers", next_step="Check the model's proof.")
    weights = np.subtract(logits, peak, out=buffer)
    log_total = np.log(np.exp(weights, out=weights).sum(dtype=np.float32))
    top = best_indices(logits, num_top)
    top_values = logits[top] - peak - log_total
    value = logits[token_id]
    return TokenLogprobs(
        token_id=token_id,
        logprob=max(float(value - peak - log_total), MIN_LOGPROB),
        rank=_rank(logits, token_id),
        top_ids=tuple(top.tolist()),
        top_logprobs=tuple(np.maximum(top_values, np.float32(MIN_LOGPROB)).tolist()),
    )


def prompt_logprobs(logits: Scores, next_ids: Sequence[int], num_top: int) -> list[TokenLogprobs]:
    """One entry per prompt token that follows a position.

    Args:
        logits: [T, V] raw logits after each of T prompt tokens.
        next_ids: The T tokens that follow them.
        num_top: How many alternatives to list.

    Raises:
        RequestError: The logits hold NaN or infinity.
    """
    buffer = np.empty(logits.shape[1], dtype=np.float32)
    return [token_logprobs(row, token_id, num_top, buffer) for row, token_id in zip(logits, next_ids, strict=True)]


def _rank(logits: Scores, token_id: int) -> int:
    value = logits[token_id]
    better = np.count_nonzero(logits > value)
    return int(better + np.count_nonzero(logits[:token_id] == value)) + 1
