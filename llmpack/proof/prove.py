"""Runs the cases through the compiled programs and compares each with what transformers said."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from llmpack.errors import ProofFailed
from llmpack.plan.plan import CompilePlan
from llmpack.proof.cases import ProofCase
from llmpack.proof.compare import FLOAT32_TOLERANCE, compare_logits
from llmpack.proof.report import CaseResult, ProofReport
from llmpack.runtime.chunk_plan import plan_chunks
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, Runner

Logits = npt.NDArray[np.float32]
Reference = Mapping[str, Logits]


def collect_reference(
    cases: list[ProofCase], plan: CompilePlan, logits: Callable[..., Logits], advance: Callable[[int], None]
) -> dict[str, Logits]:
    """Returns the oracle's logits per case. Asked before any program is loaded, so that both are never in memory."""
    pad_to = _long_rope_length(plan)
    reference = {}
    for case in cases:
        reference[case.name] = logits(case.token_ids, case.compared_positions, pad_to)
        advance(1)
    return reference


def prove(
    cases: list[ProofCase], reference: Reference, runner: Runner, described: str, advance: Callable[[int], None]
) -> ProofReport:
    """Returns the report of all cases.

    Args:
        cases: What to run, in order.
        reference: The oracle's logits by case name.
        runner: Over the compiled programs.
        described: What the reference is.
        advance: Called with 1 after each case.
    """
    results = []
    for case in cases:
        results.append(_run(case, reference[case.name], runner))
        advance(1)
    return ProofReport(reference=described, tolerance=FLOAT32_TOLERANCE, cases=results)


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


def _long_rope_length(plan: CompilePlan) -> int:
    """Returns the length from which transformers uses longrope's long factors, or 0 when the plan does not."""
    if plan.rope_table != "long":
        return 0
    originals = (rope.scaling["original_max_position_embeddings"] for rope in plan.spec.ropes.values())
    return max(int(str(length)) for length in originals) + 1


def _run(case: ProofCase, reference: Logits, runner: Runner) -> CaseResult:
    rows, programs = _prefill(case, runner)
    for position in range(case.prompt_len, len(case.token_ids)):
        rows.append(_decode(case, position, runner))
        programs.append(f"decode-{case.decode_bucket}")
    unique = list(dict.fromkeys(programs))
    return compare_logits(reference, np.stack(rows), case.compared_positions, name=case.name, programs=unique)


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
