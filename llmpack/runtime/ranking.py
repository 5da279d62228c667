"""The best entries of a row of scores, with ties in a settled order: the lowest index first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float32]


def best_indices(scores: Scores, count: int) -> Indices:
    """Indices of the `count` largest scores (all when there are fewer), best first.

    Costs one partition of [V] and a sort of `count`, not a sort of [V]. `scores` must hold no NaN.
    """
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    chosen = _largest(scores, count) if count < scores.size else np.arange(scores.size, dtype=np.intp)
    # A stable sort of ascending indices keeps equal scores in index order.
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _largest(scores: Scores, count: int) -> Indices:
    """Indices of the `count` largest scores, ascending."""
    border = scores.size - count
    threshold = np.partition(scores, border)[border]
    above = np.flatnonzero(scores > threshold)
    equal = np.flatnonzero(scores == threshold)[: count - above.size]
    return np.sort(np.concatenate((above, equal)))
