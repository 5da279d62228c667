"""Draws one token from one row of scores: temperature, min_p, top_k, top_p and one uniform number.

A row's steps are few passes over [V] in float32. Arrays of that size are written into a buffer that the caller keeps:
giving such an array back to the system and taking it anew for every row costs more than the arithmetic.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from llmpack.runtime.ranking import Indices, Scores, best_indices
from llmpack.runtime.request import Sampling

_BLOCK_LEN = 256
_ROUNDING_SLACK = 0.01


def draw(scores: Scores, sampling: Sampling, number: float, buffer: Scores | None = None) -> int:
    """The token at `number` of the distribution that temperature, min_p, top_k and top_p leave.

    min_p and top_k both keep the best scores, so their order does not matter and the cheaper cut, top_k, comes first.

    Args:
        scores: [V] edited logits, the largest of them finite.
        sampling: Its temperature must not be 0.
        number: In [0, 1).
        buffer: [V] to be written over; a new one unless given.
    """
    ids = best_indices(scores, sampling.top_k) if 0 < sampling.top_k < scores.size else None
    scaled = _scale(scores, sampling.temperature, buffer) if ids is None else _scale(scores[ids], sampling.temperature)
    kept = _surviving_indices(scaled, sampling)
    index = _pick(np.exp(scaled, out=scaled) if kept is None else np.exp(scaled[kept]), number)
    index = index if kept is None else int(kept[index])
    return index if ids is None else int(ids[index])


def _scale(scores: Scores, temperature: float, buffer: Scores | None = None) -> Scores:
    """The scores over temperature, with the peak at 0."""
    # With the peak taken off, only hopeless scores can overflow, and minus infinity is right for them.
    with np.errstate(over="ignore"):
        scaled: Scores = np.subtract(scores, scores.max(), out=buffer)
        scaled /= np.float32(temperature)
    return scaled


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


def _surviving_indices(scaled: Scores, sampling: Sampling) -> Indices | None:
    """Indices that may be drawn after min_p and top_p; None for all of them."""
    kept: Indices | None = None
    if sampling.min_p > 0.0:
        # p >= min_p * p_max, in logs and with the peak at 0.
        kept = np.flatnonzero(scaled >= np.float32(math.log(sampling.min_p)))
    if sampling.top_p < 1.0:
        nucleus = _nucleus(scaled if kept is None else scaled[kept], sampling.top_p)
        kept = nucleus if kept is None else kept[nucleus]
    return kept


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
