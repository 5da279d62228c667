"""What holds for every command that writes a bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmpack.artifact.reader import open_artifact
from llmpack.bundle.emit import emit_triton
from llmpack.bundle.openai.emit import emit_openai
from llmpack.errors import IntegrityError, UsageError
from tests.bundle.emitted import read_files, write_sample

Emit = Callable[[Path, Path], Any]
COMMANDS: dict[str, Emit] = {"emit-triton": emit_triton, "emit-openai": emit_openai}
INSIDE = {"emit-triton": Path("tiny-llama", "1", "artifact"), "emit-openai": Path("artifact")}

pytestmark = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def emit(command: str) -> Emit:
    return COMMANDS[command]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "artifact")


def test_the_artifact_is_inside_and_whole(command: str, emit: Emit, artifact: Path, tmp_path: Path) -> None:
    emitted = emit(artifact, tmp_path / "bundle")
    assert emitted.model_name == "tiny-llama"
    inside = open_artifact(tmp_path / "bundle" / INSIDE[command])
    assert inside.manifest == open_artifact(artifact).manifest
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_copies_where_links_are_impossible(
    command: str, emit: Emit, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_source: str, _target: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    emit(artifact, tmp_path / "bundle")
    copy = tmp_path / "bundle" / INSIDE[command]
    assert open_artifact(copy)
    assert not (copy / "llmpack.json").samefile(artifact / "llmpack.json")


def test_an_altered_artifact_is_refused(emit: Emit, artifact: Path, tmp_path: Path) -> None:
    (artifact / "programs" / "decode-1.onnx").write_bytes(b"Decode program for one")
    with pytest.raises(IntegrityError, match=r"programs/decode-1\.onnx: altered"):
        emit(artifact, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_an_existing_output_stays(emit: Emit, artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    with pytest.raises(UsageError, match="the output exists already"):
        emit(artifact, tmp_path / "bundle")
    assert list((tmp_path / "bundle").iterdir()) == []


def test_command(command: str, artifact: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "llmpack", command, str(artifact), "-o", str(tmp_path / "bundle"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    emitted = json.loads(done.stdout)
    assert sorted(emitted["files"]) == sorted(read_files(tmp_path / "bundle"))
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "the output exists already" in again.stderr
