"""From a checkpoint to an artifact: read, plan, write the weights, export the programs, prove, commit."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmpack.architectures.arch_spec import ArchSpec
from llmpack.architectures.resolve import build_decoder_spec, find_row
from llmpack.artifact.consistency import ITEM_BYTES
from llmpack.artifact.manifest import LOGITS_PATH, Manifest, Measured, Program
from llmpack.artifact.reader import Artifact
from llmpack.artifact.weights_file import WEIGHTS_PATH
from llmpack.artifact.writer import ArtifactWriter, check_target
from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.source import open_checkpoint
from llmpack.compiler.memory import peak_memory_bytes, release_memory
from llmpack.compiler.progress import CompileProgress, Silent
from llmpack.compiler.storage import find_dtype, list_forms
from llmpack.compiler.weights import WeightPlan, lay_out_weights, plan_weights, write_weights
from llmpack.errors import CheckpointError
from llmpack.plan.options import CompileOptions
from llmpack.plan.plan import CompilePlan, build_plan, check_choices
from llmpack.runtime.runner import Runner


@dataclass(frozen=True, slots=True)
class PreparedCompile:
    """A compile that has been checked and planned; nothing was written yet.

    Attributes:
        checkpoint: What comes in.
        row: Its family.
        plan: All shapes.
        weights: Which tensor becomes which parameter.
    """

    checkpoint: Checkpoint
    row: ArchSpec
    plan: CompilePlan
    weights: WeightPlan

    @property
    def weights_bytes(self) -> int:
        """Bytes of the parameters as they are stored."""
        forms = list_forms(self.weights.parameters, self.plan, tied=self.weights.tied)
        return sum(math.prod(form.shape) * ITEM_BYTES[form.dtype] for form in forms)


def prepare(options: CompileOptions) -> PreparedCompile:
    """Returns the plan of a compile, having read configs and tensor headers only (`--dry-run` stops here).

    Raises:
        CheckpointError: The checkpoint is missing, unsafe, damaged or incomplete.
        UnsupportedArchitecture: The model, or a setting of it, has no row.
        PlanError: The shapes cannot be compiled.
        UsageError: The output exists.
    """
    check_choices(options)
    check_target(options.output)
    checkpoint = open_checkpoint(options.model, revision=options.revision)
    _check_tokenizer(checkpoint)
    row = find_row(checkpoint.config)
    spec = build_decoder_spec(row, checkpoint.config)
    plan = build_plan(spec, options, stored_dtype=find_dtype(checkpoint.weights))
    weights = plan_weights(row, spec, checkpoint.weights, checkpoint.config)
    return PreparedCompile(checkpoint, row, plan, weights)


def _check_tokenizer(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError without a tokenizer.json: the artifact must serve text without transformers."""
    if checkpoint.read_sidecar("tokenizer.json") is None:
        raise CheckpointError(
            "the checkpoint has no tokenizer.json",
            where=checkpoint.model,
            next_step="Make one with transformers: AutoTokenizer.from_pretrained(MODEL).save_pretrained(MODEL)",
        )


def compile_model(options: CompileOptions, progress: CompileProgress | None = None) -> Artifact:
    """Compiles a model and returns the artifact, which appears at `options.output` whole or not at all.

    Raises:
        LlmpackError: As `prepare`; also ProofFailed when the programs disagree with transformers.
    """
    started = time.monotonic()
    return commit(prepare(options), options, progress or Silent(), started)


def commit(prepared: PreparedCompile, options: CompileOptions, progress: CompileProgress, started: float) -> Artifact:
    """Writes, proves and commits a prepared compile. `started` is the monotonic time the whole compile began."""
    with ArtifactWriter(options.output) as writer:
        programs = _write_contents(writer.path, prepared, progress)
        release_memory()
        draft = _draft(prepared, programs, started)
        if options.proof:
            _prove(writer.path, prepared, draft, progress)
        manifest = writer.commit(msgspec.structs.replace(draft, measured=_measure(prepared, started)))
        return Artifact(writer.path.resolve(), manifest)


def _write_contents(path: Path, prepared: PreparedCompile, progress: CompileProgress) -> tuple[Program, ...]:
    """Writes weights, programs and the checkpoint's own files; returns the programs' manifest entries."""
    from llmpack.compiler.programs import ProgramInputs, write_programs

    plan, weights = prepared.plan, prepared.weights
    head, stored = lay_out_weights(weights, plan)
    (path / WEIGHTS_PATH).parent.mkdir()
    progress.start("writing weights", prepared.weights_bytes, "bytes")
    inputs = (weights, plan, prepared.checkpoint.weights)
    write_weights(path / WEIGHTS_PATH, head, stored, inputs, progress.advance)
    (path / "programs").mkdir()
    entries = write_programs(ProgramInputs(path, plan, weights.tied, stored), progress)
    _copy_sidecars(path, prepared.checkpoint)
    return entries


def _copy_sidecars(path: Path, checkpoint: Checkpoint) -> None:
    for name, content in checkpoint.sidecar_files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, target)
        else:
            target.write_bytes(content)


def _draft(prepared: PreparedCompile, programs: tuple[Program, ...], started: float) -> Manifest:
    from llmpack.compiler.manifest import Compiled, draft_manifest

    compiled = Compiled(prepared.checkpoint, prepared.plan, prepared.weights, programs)
    return draft_manifest(compiled, _measure(prepared, started))


def _measure(prepared: PreparedCompile, started: float) -> Measured:
    return Measured(
        compile_time_s=round(time.monotonic() - started, 1),
        peak_memory_bytes=peak_memory_bytes(),
        weights_bytes=prepared.weights_bytes,
        artifact_bytes=0,
    )


def _prove(path: Path, prepared: PreparedCompile, draft: Manifest, progress: CompileProgress) -> None:
    """Writes proof.json. The programs are gone before the oracle is loaded.

    Raises:
        ProofFailed: A case is beyond the tolerance.
    """
    from llmpack.proof.cases import build_cases
    from llmpack.proof.prove import check_proof, judge, run_programs
    from llmpack.proof.report import PROOF_NAME, encode_report
    from llmpack.proof.rows import build_row_cases, judge_rows, run_rows

    cases, row_cases = build_cases(prepared.plan), build_row_cases(prepared.plan)
    num_cases = len(cases) + len(row_cases)
    progress.start("running programs", num_cases, "cases")
    given = run_programs(cases, _load_for_proof(path, draft), progress.advance)
    given_rows = run_rows(row_cases, path / LOGITS_PATH, progress.advance)
    release_memory()
    from llmpack.proof.oracle import TransformersOracle  # After the programs: importing transformers takes memory too.

    progress.start("asking transformers", num_cases, "cases")
    oracle = TransformersOracle(prepared.checkpoint, prepared.row)
    report = judge(cases, given, prepared.plan, oracle, progress.advance)
    report.cases.extend(judge_rows(row_cases, given_rows, prepared.plan, oracle, progress.advance))
    check_proof(report)
    (path / PROOF_NAME).write_bytes(encode_report(report))


def _load_for_proof(path: Path, draft: Manifest) -> Runner:
    """Returns a runner that spares memory: ONNX Runtime's packed copy of the weights would be made for a few calls."""
    if draft.engine == "onnxruntime":
        from llmpack.runtime.onnx_runner import OnnxRunner

        return OnnxRunner(path, draft, prepacked=frozenset())
    from llmpack.runtime.load import load_runner

    return load_runner(path, draft)
