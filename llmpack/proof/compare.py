"""How far two sets of logits are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llmpack.artifact.manifest import DtypeName
from llmpack.proof.report import CaseResult, Tolerance

Logits = npt.NDArray[np.float32]

_NOT_A_NUMBER = 1e9

TOLERANCES: Mapping[DtypeName, Tolerance] = {
    "float32": Tolerance(max_error=1e-3, max_kl=1e-5),
    "bfloat16": Tolerance(max_error=5e-2, max_kl=2e-2),
}
"""By the dtype of the programs; the reference is float32. Two float32 implementations differ by rounding alone, and
bfloat16 rounds each factor to 8 bits: a wrong operator is off by orders of magnitude more than either."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What two sets of logits belong to.

    Attributes:
        name: Of the case.
        programs: That gave one of them.
        positions: Of their N rows.
    """

    name: str
    programs: list[str]
    positions: Sequence[int]


def compare_logits(compared: Compared, reference: Logits, given: Logits, tolerance: Tolerance) -> CaseResult:
    """Returns the distance between two [N, V] logits, judged by the tolerance.

    Given values that are no numbers count as very wrong ones, so that their position is found like any other.
    """
    given = np.nan_to_num(given, nan=_NOT_A_NUMBER, posinf=_NOT_A_NUMBER, neginf=-_NOT_A_NUMBER)
    scale = max(1.0, float(np.abs(reference).max()))
    errors = np.abs(given - reference).max(axis=-1) / scale
    worst = int(errors.argmax())
    divergence = float(kl_divergence(reference, given).max())
    same = reference.argmax(-1) == given.argmax(-1)
    within = float(errors[worst]) <= tolerance.max_error and divergence <= tolerance.max_kl
    return CaseResult(
        name=compared.name,
        programs=compared.programs,
        num_positions=len(compared.positions),
        max_error=float(errors[worst]),
        max_kl=divergence,
        worst_position=int(compared.positions[worst]),
        greedy_agreement=float(same.mean()),
        passed=within and bool((same | _tied(reference, given, 2 * tolerance.max_error * scale)).all()),
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


def _tied(reference: Logits, given: Logits, margin: float) -> npt.NDArray[np.bool_]:
    """Returns where our greedy token is as good as the reference's, but for the margin."""
    rows = np.arange(len(reference))
    gap = reference.max(-1) - reference[rows, given.argmax(-1)]
    return np.asarray(gap <= margin)
