"""Runs the cases through the compiled programs and compares each with what transformers says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from llmpack.errors import ProofFailed
from llmpack.plan.plan import CompilePlan
from llmpack.proof.cases import ProofCase
from llmpack.proof.compare import TOLERANCES, Compared, compare_logits
from llmpack.proof.report import ProofReport
from llmpack.runtime.chunk_plan import plan_chunks
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, Runner

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ProgramLogits:
    """What the programs said about a case: [N, V] logits of its compared positions, and which programs ran."""

    logits: Logits
    programs: list[str]


class Oracle(Protocol):
    """Who is believed."""

    reference: str

    def logits(self, token_ids: Sequence[int], positions: Sequence[int], pad_to: int = 0) -> Logits:
        """Returns [len(positions), V] logits of one pass over the sequence, extended to pad_to tokens."""
        ...


def run_programs(cases: list[ProofCase], runner: Runner, advance: Callable[[int], None]) -> dict[str, ProgramLogits]:
    """Returns the programs' logits by case name, in the cases' order, calling advance(1) after each.

    The oracle is asked afterwards, so that programs and reference model are never in memory together.
    """
    results = {}
    for case in cases:
        results[case.name] = _run(case, runner)
        advance(1)
    return results


def judge(
    cases: list[ProofCase],
    given: Mapping[str, ProgramLogits],
    plan: CompilePlan,
    oracle: Oracle,
    advance: Callable[[int], None],
) -> ProofReport:
    """Returns the report: every case's distance from the oracle, calling advance(1) after each."""
    pad_to = long_rope_length(plan)
    tolerance = TOLERANCES[plan.dtype]
    results = []
    for case in cases:
        reference = oracle.logits(case.token_ids, case.compared_positions, pad_to)
        result = given[case.name]
        compared = Compared(case.name, result.programs, case.compared_positions)
        results.append(compare_logits(compared, reference, result.logits, tolerance))
        advance(1)
    return ProofReport(reference=oracle.reference, tolerance=tolerance, cases=results)


def check_proof(report: ProofReport) -> None:
    """Raises ProofFailed, naming every failed case with its programs, position and distance."""
    failed = [case for case in report.cases if not case.passed]
    if not failed:
        return
    lines = [
        f"{case.name} ({', '.join(case.programs)}): error {case.max_error:.2e}, KL {case.max_kl:.2e}, "
        f"greedy agreement {case.greedy_agreement:.0%}, worst at position {case.worst_position}"
        for case in failed
    ]
    tolerance = report.tolerance
    raise ProofFailed(
        f"the programs disagree with {report.reference} in {len(failed)} of {len(report.cases)} cases:\n  "
        + "\n  ".join(lines),
        allowed=f"error {tolerance.max_error:g} of the largest logit, KL {tolerance.max_kl:g} nats",
        next_step="Nothing was written. Please report the model and this message.",
    )


def long_rope_length(plan: CompilePlan) -> int:
    """Returns the length from which transformers uses longrope's long factors, or 0 when the plan does not."""
    if plan.rope_table != "long":
        return 0
    originals = (rope.scaling["original_max_position_embeddings"] for rope in plan.spec.ropes.values())
    return max(int(str(length)) for length in originals) + 1


def _run(case: ProofCase, runner: Runner) -> ProgramLogits:
    rows, programs = _prefill(case, runner)
    for position in range(case.prompt_len, len(case.token_ids)):
        rows.append(_decode(case, position, runner))
        programs.append(f"decode-{case.decode_bucket}")
    return ProgramLogits(np.stack(rows), list(dict.fromkeys(programs)))


def _prefill(case: ProofCase, runner: Runner) -> tuple[list[Logits], list[str]]:
    """Returns [V] logits of the prompt's compared positions and the programs that ran."""
    wanted = case.num_compared > 1
    first = case.prompt_len - case.num_compared
    rows: dict[int, Logits] = {}
    programs = ["head"] if wanted else []
    for span in plan_chunks(case.prompt_len, runner.shape):
        chunk = PrefillChunk(case.slot, span.start, case.token_ids[span.start : span.end], span.bucket, wanted)
        result = runner.prefill(chunk)
        programs.append(f"prefill-{span.bucket}")
        logits = result.last[None] if result.all is None else result.all
        for position in range(max(first, span.end - len(logits)), span.end):
            rows[position] = np.array(logits[position - span.end])  # A copy: the chunk's logits are large.
    return [rows[position] for position in range(first, case.prompt_len)], programs


def _decode(case: ProofCase, position: int, runner: Runner) -> Logits:
    """Returns [V] logits after one token; the other rows of the bucket write to a position they never read."""
    bucket = case.decode_bucket
    first = min(case.slot, runner.shape.batch_size - bucket)
    token_ids, lengths = [0] * bucket, [0] * bucket
    token_ids[case.slot - first] = case.token_ids[position]
    lengths[case.slot - first] = position
    batch = DecodeBatch(first, bucket, token_ids, lengths)
    return np.array(runner.decode(batch)[case.slot - first])
