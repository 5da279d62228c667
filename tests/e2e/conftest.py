"""A real checkpoint, compiled once per session by the command that a user would type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STORIES = Path(__file__).parent.parent / "data" / "stories260K"


def compile_command(target: Path, *options: str) -> list[str]:
    shape = ("--max-seq-len", "128", "--batch-size", "2", "--prefill-buckets", "32")
    return [sys.executable, "-m", "llmpack", "compile", str(STORIES), "-o", str(target), *shape, *options]


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K as an artifact, with its proof."""
    target = tmp_path_factory.mktemp("artifacts") / "stories"
    subprocess.run(compile_command(target), check=True)
    return target
