"""An artifact that this machine cannot run is refused before any of its code is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from llmpack.artifact import requirements
from llmpack.artifact.manifest import RuntimeRange
from llmpack.artifact.reader import Artifact
from llmpack.errors import ArtifactError
from llmpack.runtime.load import load_engine
from tests.artifact.samples import make_draft


def artifact(directory: Path, runtime: RuntimeRange) -> Artifact:
    features = ["avx2", "avx512_bf16", "avx512f"]
    manifest = msgspec.structs.replace(make_draft(), engine="inductor", runtime=runtime, required_cpu_features=features)
    return Artifact(directory, manifest)


def test_missing_cpu_features_and_torch_are_named_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "read_cpu_features", lambda: {"avx2"})
    monkeypatch.setattr(requirements, "version", lambda _: "2.12.1")
    monkeypatch.delitem(sys.modules, "llmpack.runtime.inductor_runner", raising=False)
    with pytest.raises(ArtifactError) as caught:
        load_engine(artifact(tmp_path, RuntimeRange(name="torch", minimum="2.13.0", below="2.14")))
    message = str(caught.value)
    assert "torch 2.12.1 is installed, needed: torch >= 2.13.0, < 2.14" in message
    assert "this CPU lacks avx512_bf16; this CPU lacks avx512f" in message
    assert "llmpack.runtime.inductor_runner" not in sys.modules
