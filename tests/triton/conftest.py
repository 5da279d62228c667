"""A real checkpoint, compiled once, emitted for each target and served once per target by a real Triton server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmpack.bundle.emit import emit_triton
from llmpack.bundle.options import EmitOptions, TritonTarget
from tests.e2e.serving import compile_artifact
from tests.triton.serving import PYTHON, Triton, serving

HERE = Path(__file__).parent
STORIES = HERE.parent / "data" / "stories260K"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.triton, pytest.mark.slow, pytest.mark.compile):
                item.add_marker(mark)
            if not PYTHON.exists():
                item.add_marker(pytest.mark.skip(reason="needs scripts/triton-environment"))


@pytest.fixture(scope="session")
def stories8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K as an artifact of 8 slots of 512 tokens."""
    shape = ("--max-seq-len", "512", "--batch-size", "8", "--prefill-buckets", "32", "--logits", "--no-proof")
    return compile_artifact(STORIES, tmp_path_factory.mktemp("stories8") / "artifact", *shape)


def emit(artifact: Path, folder: Path, target: TritonTarget, **options: object) -> Path:
    """A bundle that was emitted elsewhere and moved to where it is."""
    emitted = folder / "emitted"
    emit_triton(artifact, emitted, EmitOptions(target=target, **options))  # type: ignore[arg-type]
    return emitted.rename(folder / f"moved-{target}")


@pytest.fixture(scope="session")
def streaming_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emit(stories8, tmp_path_factory.mktemp("streaming"), "triton", model_name="stories")


@pytest.fixture(scope="session")
def streaming(streaming_bundle: Path) -> Iterator[Triton]:
    """The target `triton` as the model `stories`."""
    with serving(streaming_bundle, "stories") as server:
        yield server


@pytest.fixture(scope="session")
def batching_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emit(stories8, tmp_path_factory.mktemp("batching"), "triton-python", model_name="llamav2")


@pytest.fixture(scope="session")
def batching(batching_bundle: Path) -> Iterator[Triton]:
    """The target `triton-python` as the model `llamav2`."""
    with serving(batching_bundle, "llamav2") as server:
        yield server


@pytest.fixture(scope="session")
def ensemble_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emit(stories8, tmp_path_factory.mktemp("ensemble"), "triton-ensemble", model_name="ensemble_model")


@pytest.fixture(scope="session")
def ensemble(ensemble_bundle: Path) -> Iterator[Triton]:
    """The target `triton-ensemble` as the model `ensemble_model`; loading it loads its steps."""
    with serving(ensemble_bundle, "ensemble_model") as server:
        yield server


@pytest.fixture(scope="session")
def logits_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emit(stories8, tmp_path_factory.mktemp("logits"), "triton-logits", model_name="model")


@pytest.fixture(scope="session")
def logits_server(logits_bundle: Path) -> Iterator[Triton]:
    """The target `triton-logits` as the model `model`."""
    with serving(logits_bundle, "model") as server:
        yield server
