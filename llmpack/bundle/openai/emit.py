"""From an artifact to an OpenAI bundle that `llmpack validate` accepts.

manifest -> OpenAIPlan -> files as typed values -> text -> written aside -> read back by the rules -> moved to its place
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from llmpack.bundle.emit import check_bundle
from llmpack.bundle.openai.files import build_files
from llmpack.bundle.openai.options import ARTIFACT_DIR, OpenAIOptions, resolve_plan
from llmpack.bundle.write import staged_bundle, take_artifact, write_files


@dataclass(frozen=True, slots=True)
class EmittedOpenAIBundle:
    """What was written.

    Attributes:
        path: The bundle, absolute.
        server: Which server it starts.
        release: The server's version.
        model_name: The name that requests say.
        image: Name of its container image.
        memory_mib: What the server needs, in MiB.
        files: Paths in the bundle, without the artifact's.
        notes: Findings that do not stand against it.
    """

    path: str
    server: str
    release: str
    model_name: str
    image: str
    memory_mib: int
    files: tuple[str, ...]
    notes: tuple[str, ...]


def emit_openai(directory: Path, output: Path, options: OpenAIOptions | None = None) -> EmittedOpenAIBundle:
    """Writes a bundle for an OpenAI-compatible server to `output`, where nothing may be yet.

    Args:
        directory: The artifact; every file of llmpack's own is hashed first.
        output: The bundle to be.
        options: What to emit.

    Raises:
        ArtifactError: The artifact cannot be used.
        UsageError: An option that cannot be used, or the output exists.
        ValidationFailed: The rules find fault with the bundle; nothing was written.
    """
    plan = resolve_plan(options or OpenAIOptions(), directory)
    target = Path(os.path.abspath(output))  # noqa: PTH100 - resolve() would follow a link at the target
    files = build_files(plan)
    with staged_bundle(target) as stage:
        write_files(stage, files)
        if plan.is_artifact_inside and plan.model_dir:
            take_artifact(plan.model_dir, stage / ARTIFACT_DIR)
        notes = check_bundle(stage, directory, {plan.command.engine: plan.command.release})
    return EmittedOpenAIBundle(
        path=str(target),
        server=plan.command.engine,
        release=plan.command.release,
        model_name=plan.model_name,
        image=plan.image,
        memory_mib=plan.resources.memory_mib,
        files=tuple(file.path for file in files),
        notes=notes,
    )
