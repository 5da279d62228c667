"""Everything that `llmpack bench --triton` starts: emitted bundles, each on a real server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmpack.artifact.reader import Artifact
from llmpack.bench.http_load import HttpLoad
from llmpack.bench.transformers_bundle import MODEL_NAME as TRANSFORMERS
from llmpack.bench.transformers_bundle import emit_transformers
from llmpack.bench.triton_dialects import TritonBatch, TritonStream
from llmpack.bench.triton_process import serve_bundle
from llmpack.bundle.emit import emit_triton
from llmpack.bundle.options import EmitOptions, TritonTarget

_MODEL = "llmpack"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on a Triton server.

    Attributes:
        system: As in `TritonCell`.
        engine: What computes.
        num_instances: Of the model.
    """

    system: str
    engine: str
    num_instances: int


SEQUENTIAL = Deployment("sequential", "transformers", 1)
SEQUENTIAL_2 = Deployment("sequential", "transformers", 2)
DYNAMIC_TRANSFORMERS = Deployment("dynamic", "transformers", 1)
DYNAMIC = Deployment("dynamic", "llmpack", 1)
DYNAMIC_2 = Deployment("dynamic", "llmpack", 2)
CONTINUOUS = Deployment("continuous", "llmpack", 1)
CONTINUOUS_2 = Deployment("continuous", "llmpack", 2)

DEPLOYMENTS = (SEQUENTIAL, SEQUENTIAL_2, DYNAMIC_TRANSFORMERS, DYNAMIC, DYNAMIC_2, CONTINUOUS, CONTINUOUS_2)


@dataclass(frozen=True, slots=True)
class Models:
    """What is deployed.

    Attributes:
        artifact: For llmpack.
        checkpoint: For transformers.
        rows: Requests of a dynamic batch at most.
    """

    artifact: Artifact
    checkpoint: Path
    rows: int


@contextmanager
def deployed(deployment: Deployment, models: Models, bundle: Path) -> Iterator[HttpLoad]:
    """Emits a bundle to `bundle`, where nothing may be yet, serves it, and gives what runs loads on it.

    Raises:
        UsageError: The bundle cannot be emitted: a target may have but one instance.
        BenchError: Triton does not start or load it.
    """
    dialect = _emit(deployment, models, bundle)
    with serve_bundle(bundle, dialect.model) as origin:
        yield HttpLoad(origin, dialect, {})


def _emit(deployment: Deployment, models: Models, bundle: Path) -> TritonBatch | TritonStream:
    if deployment.engine == "transformers":
        rows = 1 if deployment.system == "sequential" else models.rows
        manifest, count = models.artifact.manifest, deployment.num_instances
        emit_transformers(models.checkpoint, bundle, manifest, rows=rows, num_instances=count)
        return TritonBatch(TRANSFORMERS)
    target: TritonTarget = "triton" if deployment.system == "continuous" else "triton-python"
    options = EmitOptions(
        target=target, model_name=_MODEL, num_instances=deployment.num_instances, has_absolute_paths=True
    )
    emit_triton(models.artifact.path, bundle, options)
    return TritonStream(_MODEL) if target == "triton" else TritonBatch(_MODEL)
