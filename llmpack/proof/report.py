"""The proof's result as it is written to `proof.json` and read back by `verify` and `inspect`. Needs no torch."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from llmpack.errors import ManifestError

PROOF_NAME = "proof.json"


class Tolerance(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a case must stay within.

    Attributes:
        max_error: Largest |logit difference|, as a share of the largest |logit| of the reference (at least 1).
        max_kl: Largest Kullback-Leibler divergence of a position, in nats.
    """

    max_error: float
    max_kl: float


class CaseResult(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far one case is from transformers.

    Attributes:
        name: What the case exercises.
        programs: Names of the programs it ran.
        num_positions: Positions whose logits were compared.
        max_error: As in `Tolerance`, the largest found.
        max_kl: The largest divergence found, in nats.
        worst_position: Position in the sequence with the largest error.
        greedy_agreement: Share of positions with the same most likely token, in [0, 1].
        passed: Within the tolerance, and the greedy token differs only where the reference is all but tied.
    """

    name: str
    programs: list[str]
    num_positions: int
    max_error: float
    max_kl: float
    worst_position: int
    greedy_agreement: float
    passed: bool


class ProofReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every case of a proof.

    Attributes:
        reference: Class and version that the programs were compared with.
        tolerance: What was demanded.
        cases: What was found.
    """

    reference: str
    tolerance: Tolerance
    cases: list[CaseResult]

    @property
    def passed(self) -> bool:
        """Whether every case is within the tolerance."""
        return all(case.passed for case in self.cases)


def encode_report(report: ProofReport) -> bytes:
    """Returns the bytes of `proof.json`."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def find_report(artifact: Path) -> ProofReport | None:
    """Returns the artifact's proof, or None when it was compiled without one.

    Raises:
        ManifestError: `proof.json` is malformed.
    """
    path = artifact / PROOF_NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProofReport)
    except msgspec.DecodeError as error:
        raise ManifestError("the proof cannot be read", where=str(path), given=str(error)) from error
