"""From an artifact to a bundle that `llmpack validate` accepts.

manifest -> EmitPlan -> files as typed values -> text -> written aside -> read back by the rules -> moved to its place
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmpack.artifact.reader import open_artifact
from llmpack.bundle.options import LOGITS_TARGETS, EmitOptions, EmitPlan, resolve_plan
from llmpack.bundle.rendering import BundleFile
from llmpack.bundle.triton_files import build_triton_files, build_vllm_files
from llmpack.bundle.triton_logits import build_logits_files, logits_model_name
from llmpack.bundle.triton_models import ARTIFACT_DIR
from llmpack.bundle.vllm_engine import RBLN_TRITON_RELEASE, choose_engine
from llmpack.bundle.write import staged_bundle, take_artifact, write_files
from llmpack.errors import ValidationFailed
from llmpack.validate.artifacts.detect import read_facts
from llmpack.validate.evaluate import Selection
from llmpack.validate.run import Report, ValidateOptions, describe_finding, validate_paths

_OF_THIS_MACHINE = ("LP130", "LP133")  # a bundle is seldom served where it is written


@dataclass(frozen=True, slots=True)
class EmittedBundle:
    """What was written.

    Attributes:
        path: The bundle, absolute.
        target: Whom it is for.
        model_name: The model's name in Triton.
        triton_release: The container release whose contract it keeps.
        files: Paths in the bundle, without the artifact's.
        notes: Findings that do not stand against it.
    """

    path: str
    target: str
    model_name: str
    triton_release: str
    files: tuple[str, ...]
    notes: tuple[str, ...]


def emit_triton(directory: Path, output: Path, options: EmitOptions | None = None) -> EmittedBundle:
    """Writes a bundle for Triton to `output`, where nothing may be yet.

    Args:
        directory: The artifact; every file of it is hashed first.
        output: The bundle to be, which is a Triton model repository.
        options: What to emit.

    Raises:
        ArtifactError: The artifact cannot be used.
        UsageError: An option that cannot be used, or the output exists.
        ValidationFailed: The rules find fault with the bundle; nothing was written.
    """
    options = options or EmitOptions()
    target = Path(os.path.abspath(output))  # noqa: PTH100 - resolve() would follow a link at the target
    if options.target == "triton-vllm":
        return _emit_vllm(directory, target, options)
    if options.target in LOGITS_TARGETS:
        return _emit_logits(directory, target, options)
    artifact = open_artifact(directory)
    plan = resolve_plan(options, artifact.path, artifact.manifest.source.model)
    files = build_triton_files(plan, artifact.manifest)
    with staged_bundle(target) as stage:
        write_files(stage, files)
        if plan.is_artifact_inside:
            take_artifact(plan.artifact, stage / plan.version_dir / ARTIFACT_DIR)
        notes = check_bundle(stage, plan.artifact, {"triton": plan.triton_release})
    return _describe_bundle(target, plan, files, notes)


def _emit_vllm(directory: Path, target: Path, options: EmitOptions) -> EmittedBundle:
    """Absolute paths must exist when the rules look: they see the stage, and the last write names the target."""
    facts = read_facts(directory)
    if facts.kind == "optimum-rbln" and options.triton_release is None and options.engine_release is None:
        options = replace(options, triton_release=RBLN_TRITON_RELEASE)
    plan = resolve_plan(options, directory, facts.model_id or directory.name)
    engine = choose_engine(facts, options.engine_release, plan.triton_release, options.model)
    releases = {"triton": plan.triton_release} | ({engine.name: engine.release} if engine.release else {})
    with staged_bundle(target) as stage:
        write_files(stage, build_vllm_files(plan, facts, engine, stage))
        if engine.artifact_arguments and plan.is_artifact_inside:
            take_artifact(plan.artifact, stage / plan.version_dir / ARTIFACT_DIR)
        notes = check_bundle(stage, plan.artifact, releases)
        files = build_vllm_files(plan, facts, engine, target)
        write_files(stage, files)
    return _describe_bundle(target, plan, files, notes)


def _emit_logits(directory: Path, target: Path, options: EmitOptions) -> EmittedBundle:
    """The artifact itself is the version directory: only there does the program find the weights."""
    artifact = open_artifact(directory)
    plan = resolve_plan(options, artifact.path, artifact.manifest.source.model)
    files = build_logits_files(plan, artifact)
    with staged_bundle(target) as stage:
        write_files(stage, files)
        take_artifact(plan.artifact, stage / logits_model_name(plan) / "1")
        notes = check_bundle(stage, plan.artifact, {"triton": plan.triton_release})
    return _describe_bundle(target, plan, files, notes)


def _describe_bundle(
    target: Path, plan: EmitPlan, files: Sequence[BundleFile], notes: tuple[str, ...]
) -> EmittedBundle:
    return EmittedBundle(
        path=str(target),
        target=plan.target,
        model_name=plan.model_name,
        triton_release=plan.triton_release,
        files=tuple(file.path for file in files),
        notes=notes,
    )


def check_bundle(root: Path, artifact: Path, releases: Mapping[str, str]) -> tuple[str, ...]:
    """Validates a written bundle; returns notes.

    Raises:
        ValidationFailed: It has findings, or a file that cannot be read.
    """
    report = validate_paths([root], ValidateOptions(artifact, Selection(ignore=_OF_THIS_MACHINE), "sizes", releases))
    faults = _describe_faults(report)
    if faults:
        raise ValidationFailed("the bundle would not pass validation: " + "; ".join(faults))
    return tuple(describe_finding(finding) for finding in report.findings)


def _describe_faults(report: Report) -> list[str]:
    faults = [describe_finding(finding) for finding in report.findings if finding.severity != "note"]
    return faults + [f"{failure.path}: {failure.message}" for failure in report.failures]
