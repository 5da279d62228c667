"""From a checked artifact to an engine that runs it."""

from __future__ import annotations

from pathlib import Path

from llmpack.artifact.manifest import Manifest
from llmpack.artifact.reader import Artifact
from llmpack.artifact.requirements import check_runtime
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.runner import Runner
from llmpack.runtime.tokenizer import Tokenizer


def load_engine(artifact: Artifact, options: EngineOptions | None = None, *, num_threads: int = 0) -> Engine:
    """Returns an engine over the artifact's programs.

    Args:
        artifact: From `open_artifact`, thus with good hashes.
        options: Limits below what was compiled.
        num_threads: Threads that compute; 0 for one per physical core.

    Raises:
        ArtifactError: This environment may not load the programs, or the tokenizer is unusable.
        EngineError: A program cannot be loaded.
        UsageError: A limit is out of its range.
    """
    check_runtime(artifact.manifest)
    runner = load_runner(artifact.path, artifact.manifest, num_threads=num_threads)
    return Engine(runner, Tokenizer.from_directory(artifact.path), options)


def load_runner(directory: Path, manifest: Manifest, *, num_threads: int = 0) -> Runner:
    """Returns the runner of the manifest's engine; imports that engine's library alone.

    Args:
        directory: The artifact; its files are taken as checked, and its requirements as met.
        manifest: Of that artifact.
        num_threads: Threads that compute; 0 for one per physical core.

    Raises:
        EngineError: A program cannot be loaded.
    """
    if manifest.engine == "inductor":
        from llmpack.runtime.inductor_runner import InductorRunner

        return InductorRunner(directory, manifest, num_threads=num_threads)
    from llmpack.runtime.onnx_runner import OnnxRunner  # onnxruntime takes a fifth of a second to import.

    return OnnxRunner(directory, manifest, num_threads=num_threads)
