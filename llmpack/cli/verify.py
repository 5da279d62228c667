"""`llmpack verify`: whether an artifact's files are those that the compile wrote, and what its proof says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from llmpack.cli.arguments import ArtifactArgument, JsonOption
from llmpack.cli.console import EXIT_CHECK_FAILED, format_bytes, print_facts, print_json, stderr_console, talk

if TYPE_CHECKING:
    from llmpack.proof.report import ProofReport


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found; the fields of its --json.

    Attributes:
        ok: No file is missing, extra or altered, and the proof, if there is one, was passed.
        artifact: The directory.
        build_id: Of the manifest.
        num_files: Listed in the manifest.
        num_bytes: Their sizes together.
        problems: One sentence per file at fault.
        runtime_problems: Why the programs would not load on this machine; no fault of the artifact.
        proof: The content of proof.json; None when the model was compiled without a proof, or files are at fault.
    """

    ok: bool
    artifact: str
    build_id: str
    num_files: int
    num_bytes: int
    problems: list[str]
    runtime_problems: list[str]
    proof: ProofReport | None


def verify(artifact: ArtifactArgument, as_json: JsonOption = False) -> None:
    """Check the files of an artifact.

    Hashes every file, compares it with the manifest and shows the proof. Exits with 1 when something is at fault.
    """
    with stderr_console().status("hashing"):
        report = build_report(artifact)
    if as_json:
        print_json(report)
    else:
        print_facts(report.artifact, _facts(report))
    for problem in report.problems:
        talk(f"error: {problem}")
    for problem in report.runtime_problems:
        talk(f"warning: {problem}")
    if not report.ok:
        raise typer.Exit(EXIT_CHECK_FAILED)


def build_report(artifact: Path) -> VerifyReport:
    """All findings about the artifact; every byte of it is read.

    Raises:
        ArtifactError: There is no artifact, or its manifest cannot be used.
    """
    from llmpack.artifact.integrity import find_file_problems
    from llmpack.artifact.reader import read_manifest
    from llmpack.artifact.requirements import find_runtime_problems
    from llmpack.proof.report import find_report

    manifest = read_manifest(artifact)
    problems = find_file_problems(artifact, manifest)
    proof = None if problems else find_report(artifact)
    return VerifyReport(
        ok=not problems and (proof is None or proof.passed),
        artifact=str(artifact),
        build_id=manifest.build_id,
        num_files=len(manifest.files),
        num_bytes=sum(record.size_bytes for record in manifest.files),
        problems=problems,
        runtime_problems=find_runtime_problems(manifest),
        proof=proof,
    )


def _facts(report: VerifyReport) -> Iterator[tuple[str, str]]:
    state = f"{len(report.problems)} at fault" if report.problems else "all as compiled"
    yield "files", f"{report.num_files} files, {format_bytes(report.num_bytes)}: {state}"
    yield "build_id", report.build_id
    if report.proof is not None:
        yield from _proof_facts(report.proof)
    elif not report.problems:
        yield "proof", "none: compiled without one"


def _proof_facts(proof: ProofReport) -> Iterator[tuple[str, str]]:
    cases = proof.cases
    yield "proof", f"{sum(case.passed for case in cases)} of {len(cases)} cases passed, against {proof.reference}"
    yield "largest error", _worst([case.max_error for case in cases], proof.tolerance.max_error)
    yield "largest KL", _worst([case.max_kl for case in cases], proof.tolerance.max_kl) + " nats"
    yield "greedy agreement", f"{min((case.greedy_agreement for case in cases), default=1.0):.2%} in the worst case"


def _worst(values: list[float], allowed: float) -> str:
    return f"{max(values, default=0.0):.2g}, allowed {allowed:.2g}"
