"""From engine arguments to a checked artifact and the limits that it is served with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from llmpack.api.engine_args import AsyncEngineArgs
from llmpack.artifact.reader import Artifact, open_artifact, read_manifest
from llmpack.errors import ArtifactError, ValidationFailed
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.engine import EngineOptions
from llmpack.runtime.load import load_engine
from llmpack.server.served_model import ServedModel
from llmpack.validate.run import describe_finding, validate_settings

# The queue is the caller's own memory, so it has no bound here; a server's has.
_UNBOUNDED = 2**31


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """A running engine and its model."""

    engine: AsyncEngine
    model: ServedModel


def start_engine(args: AsyncEngineArgs) -> StartedEngine:
    """Checks the arguments and the artifact, loads it and starts the engine's thread.

    Raises:
        ArtifactError: There is no artifact, its files are not those that were compiled, or it cannot run here.
        ValidationFailed: Arguments disagree with the artifact; all findings are named.
    """
    artifact = open_artifact(args.artifact_dir)
    check_args(args, artifact)
    recommends = args.generation_config != "vllm"
    model = ServedModel.from_artifact(artifact.path, artifact.manifest, use_generation_config=recommends)
    if args.max_model_len is not None:
        model = replace(model, limits=replace(model.limits, max_seq_len=args.max_model_len))
    options = EngineOptions(_UNBOUNDED, args.max_num_seqs, reuses_prefixes=args.enable_prefix_caching is not False)
    engine = AsyncEngine(load_engine(artifact, options))
    engine.start()
    return StartedEngine(engine, model)


def check_args(args: AsyncEngineArgs, artifact: Artifact) -> None:
    """Returns if the arguments go with the artifact.

    Raises:
        ValidationFailed: They do not; all findings are named.
    """
    report = validate_settings(args.settings(), artifact.path)
    problems = [describe_finding(finding) for finding in report.findings if finding.severity != "note"]
    problems += _find_other_models(args, artifact)
    if args.generation_config not in (None, "auto", "vllm"):
        problems.append(f"generation_config: must be auto or vllm (given: {args.generation_config!r})")
    if problems:
        listing = "\n".join(f"  - {problem}" for problem in problems)
        raise ValidationFailed(
            f"the engine arguments do not go with the artifact {artifact.path}:\n{listing}\n"
            "Correct them, leave them out, or compile again."
        )


def _find_other_models(args: AsyncEngineArgs, artifact: Artifact) -> Iterator[str]:
    """A sentence for each directory that is named beside the artifact and holds another model.

    Hub ids are compared by the rules, which see no further than a path's name.
    """
    for name in ("model", "tokenizer"):
        value = getattr(args, name)
        path = Path(value).expanduser() if value is not None else None
        if path is not None and path.exists() and not _is_same_model(path, artifact):
            yield (
                f"{name}: the artifact was compiled from {artifact.manifest.source.model} and brings its own "
                f"tokenizer (given: {str(value)!r})"
            )


def _is_same_model(path: Path, artifact: Artifact) -> bool:
    """Whether `path` is the artifact, a copy of it, or by its name what it was compiled from."""
    try:
        return read_manifest(path).build_id == artifact.manifest.build_id
    except ArtifactError:
        return path.resolve().name == Path(artifact.manifest.source.model).name
