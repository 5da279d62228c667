"""A compile that is killed leaves nothing that loads, and the next one succeeds and cleans up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from llmpack.artifact.reader import open_artifact
from llmpack.errors import ArtifactError
from tests.e2e.conftest import compile_command

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e]


def kill_at(phase: str, target: Path) -> None:
    """Starts a compile and kills it as soon as it reports `phase`."""
    with subprocess.Popen(compile_command(target), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        reached = any(phase in line for line in process.stderr)
        process.kill()
    assert reached


def test_kill_leaves_nothing_that_loads(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for phase in ("writing weights", "exporting programs", "running programs", "asking transformers"):
        kill_at(phase, target)
        assert not target.exists()
        (left,) = tmp_path.iterdir()  # the one before was removed
        with pytest.raises(ArtifactError):
            open_artifact(left)
    subprocess.run(compile_command(target, "--no-proof"), check=True)
    open_artifact(target)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
