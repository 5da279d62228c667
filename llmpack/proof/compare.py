"""How far two sets of logits are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llmpack.proof.report import CaseResult, Tolerance

Logits = npt.NDArray[np.float32]

_NOT_A_NUMBER = 1e9

FLOAT32_TOLERANCE = Tolerance(max_error=1e-3, max_kl=1e-5)
"""Two float32 implementations differ by rounding alone; a wrong operator is off by orders of magnitude more."""


def compare_logits(
    reference: Logits, given: Logits, positions: Sequence[int], *, name: str, programs: list[str]
) -> CaseResult:
    """Returns the distance between two [N, V] logits at `positions`, judged by FLOAT32_TOLERANCE.

    Given values that are no numbers count as very wrong ones, so that their position is found like any other.
    """
    given = np.nan_to_num(given, nan=_NOT_A_NUMBER, posinf=_NOT_A_NUMBER, neginf=-_NOT_A_NUMBER)
    scale = max(1.0, float(np.abs(reference).max()))
    errors = np.abs(given - reference).max(axis=-1) / scale
    worst = int(errors.argmax())
    divergence = float(kl_divergence(reference, given).max())
    same = reference.argmax(-1) == given.argmax(-1)
    within = float(errors[worst]) <= FLOAT32_TOLERANCE.max_error and divergence <= FLOAT32_TOLERANCE.max_kl
    return CaseResult(
        name=name,
        programs=programs,
        num_positions=len(positions),
        max_error=float(errors[worst]),
        max_kl=divergence,
        worst_position=int(positions[worst]),
        greedy_agreement=float(same.mean()),
        passed=within and bool((same | _tied(reference, given, scale)).all()),
    )


def kl_divergence(reference: Logits, given: Logits) -> npt.NDArray[np.float64]:
    """Returns [N] KL(reference || given) in nats, never below zero; one row at a time is held in float64."""
    return np.array([_kl_of_row(p, q) for p, q in zip(reference, given, strict=True)])


def _kl_of_row(reference: Logits, given: Logits) -> float:
    p, q = (_log_softmax(x.astype(np.float64)) for x in (reference, given))
    return max(float((np.exp(p) * (p - q)).sum()), 0.0)


def _log_softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = x - x.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _tied(reference: Logits, given: Logits, scale: float) -> npt.NDArray[np.bool_]:
    """Returns where our greedy token is as good as the reference's, within twice the tolerance."""
    rows = np.arange(len(reference))
    gap = reference.max(-1) - reference[rows, given.argmax(-1)]
    return np.asarray(gap <= 2 * FLOAT32_TOLERANCE.max_error * scale)
