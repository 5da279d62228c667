"""What a user wants emitted, and what was decided from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from llmpack.errors import UsageError

TritonTarget = Literal["triton", "triton-vllm", "triton-python", "triton-ensemble", "triton-logits"]
TARGETS: tuple[TritonTarget, ...] = get_args(TritonTarget)
LOGITS_TARGETS: tuple[TritonTarget, ...] = ("triton-ensemble", "triton-logits")
"""Those that Triton's onnxruntime backend computes."""
LATEST_RELEASE = "26.01"  # the latest whose vLLM backend was read
FIRST_RELEASE = "24.01"

_WITH_INSTANCES = ("triton", "triton-python")

_RELEASE = re.compile(r"\d\d\.\d\d")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """What to emit.

    Attributes:
        target: Whom the bundle is for.
        model_name: The model's name in Triton; None takes that of the source.
        triton_release: Container release `yy.mm` whose contract the model keeps; None for the latest known.
        engine_release: Version of vLLM or vllm-rbln, for `triton-vllm`; None for the one in the container.
        model: What stock vLLM loads, for `triton-vllm`; None takes the artifact's source.
        num_instances: Of the model; those of `triton` share one engine, those of `triton-python` have one each.
        has_absolute_paths: Name the artifact where it lies instead of taking it into the bundle.
    """

    target: TritonTarget = "triton"
    model_name: str | None = None
    triton_release: str | None = None
    engine_release: str | None = None
    model: str | None = None
    num_instances: int = 1
    has_absolute_paths: bool = False


@dataclass(frozen=True, slots=True)
class EmitPlan:
    """What was decided.

    Attributes:
        target: Whom the bundle is for.
        model_name: The model's name in Triton.
        triton_release: Container release, `yy.mm`.
        artifact: The artifact's directory, absolute.
        is_artifact_inside: The artifact is taken into the bundle.
        num_instances: Instances of the model.
    """

    target: TritonTarget
    model_name: str
    triton_release: str
    artifact: Path
    is_artifact_inside: bool
    num_instances: int

    @property
    def version_dir(self) -> str:
        """The model's version directory in the bundle."""
        return f"{self.model_name}/1"


def resolve_plan(options: EmitOptions, artifact: Path, source_model: str) -> EmitPlan:
    """The plan for an artifact.

    Args:
        options: What is wanted.
        artifact: The artifact's directory.
        source_model: What it was compiled from: a hub id or the name of a directory.

    Raises:
        UsageError: A value that cannot be used, or that means nothing for the target.
    """
    if options.target not in TARGETS:
        raise unknown_choice("--target", options.target, TARGETS)
    if options.num_instances < 1:
        raise UsageError("too few instances", where="--instances", given=options.num_instances, allowed="1 or more")
    if options.num_instances > 1 and options.target not in _WITH_INSTANCES:
        raise UsageError(
            "another instance of this target would be another engine that loads the model again",
            where="--instances", given=options.num_instances, allowed=f"1, or --target {' or '.join(_WITH_INSTANCES)}",
        )  # fmt: skip
    if options.target != "triton-vllm" and (options.engine_release or options.model):
        name = "--engine-release" if options.engine_release else "--model"
        raise UsageError("only --target triton-vllm has an engine of its own", where=name)
    if options.target in LOGITS_TARGETS and options.has_absolute_paths:
        raise UsageError(
            "Triton's onnxruntime backend loads a program only from the directory of its model",
            where="--absolute-paths", allowed="another target, or no such option: the artifact is linked, not copied",
        )  # fmt: skip
    return EmitPlan(
        target=options.target,
        model_name=resolve_model_name(options.model_name, source_model),
        triton_release=_resolve_release(options.triton_release),
        artifact=artifact.resolve(),
        is_artifact_inside=not options.has_absolute_paths,
        num_instances=options.num_instances,
    )


def unknown_choice(where: str, given: Any, allowed: tuple[str, ...]) -> UsageError:
    """The error of a choice that there is not, with the nearest one that there is."""
    nearest = get_close_matches(str(given), allowed, n=1)
    hint = f"Did you mean {nearest[0]}?" if nearest else None
    return UsageError("unknown choice", where=where, given=given, allowed=", ".join(allowed), next_step=hint)


def resolve_model_name(given: str | None, source_model: str) -> str:
    """The name that a model is served under: the given one, or one made of the last part of the source's.

    Raises:
        UsageError: The given name has characters that stand for something in paths, scripts or YAML.
    """
    if given is None:
        last = re.split(r"[/\\]", source_model.removesuffix(".gguf").rstrip("/"))[-1]
        cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-.")
        return cleaned or "model"
    if not _MODEL_NAME.fullmatch(given):
        allowed = "ASCII letters, digits, dots, dashes and underscores, a letter or digit first"
        raise UsageError("not a name for a served model", where="--model-name", given=given, allowed=allowed)
    return given


def _resolve_release(given: str | None) -> str:
    release = given or LATEST_RELEASE
    if not _RELEASE.fullmatch(release) or release < FIRST_RELEASE:
        raise UsageError(
            "not a release of Triton's container that is known",
            where="--triton-release", given=given, allowed=f"yy.mm from {FIRST_RELEASE} on",
        )  # fmt: skip
    return release
