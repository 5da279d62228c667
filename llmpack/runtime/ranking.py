"""The best entries of a row of scores, with ties in a settled order: the lowest index first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float32]

_COLUMN_LEN = 64


def best_indices(scores: Scores, count: int) -> Indices:
    """Indices of the `count` largest scores (all when there are fewer), best first.

    Costs two passes over [V] and a sort of about `count`, not a sort of [V]. `scores` must hold no NaN.
    """
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    chosen = _largest(scores, count) if count < scores.size else np.arange(scores.size, dtype=np.intp)
    # A stable sort of ascending indices keeps equal scores in index order.
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _largest(scores: Scores, count: int) -> Indices:
    """Indices of the `count` largest scores, ascending."""
    candidates = _find_candidates(scores, count)
    values = scores[candidates]
    border = values.size - count
    threshold = np.partition(values, border)[border]
    above = np.flatnonzero(values > threshold)
    equal = np.flatnonzero(values == threshold)[: count - above.size]
    return candidates[np.sort(np.concatenate((above, equal)))]


def _find_candidates(scores: Scores, count: int) -> Indices:
    """Ascending indices, few where possible, among which the `count` largest are.

    The row is looked at as columns of 64. Of the columns' best, `count` reach the bound, so the `count` largest of all
    scores do too.
    """
    num_columns = scores.size // _COLUMN_LEN
    if num_columns < 2 * count:
        return np.arange(scores.size)
    best = scores[: num_columns * _COLUMN_LEN].reshape(_COLUMN_LEN, num_columns).max(axis=0)
    bound = np.partition(best, num_columns - count)[num_columns - count]
    return np.flatnonzero(scores >= bound)
