"""A real checkpoint, compiled once per session by the command that a user would type, and served once."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import Served, compile_artifact, serving

STORIES = Path(__file__).parent.parent / "data" / "stories260K"
SHAPE = ("--max-seq-len", "256", "--batch-size", "4", "--prefill-buckets", "32")
# The checkpoint has no template; one that writes BOS itself is the interesting kind.
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"


def compile_command(target: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "llmpack", "compile", str(STORIES), "-o", str(target), *SHAPE, *options]


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, with a chat template, as an artifact of 4 slots of 256 tokens, with its proof."""
    folder = tmp_path_factory.mktemp("stories")
    checkpoint = Path(shutil.copytree(STORIES, folder / "checkpoint"))
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return compile_artifact(checkpoint, folder / "artifact", *SHAPE)


@pytest.fixture(scope="session")
def served_stories(stories: Path) -> Iterator[Served]:
    """`stories`, served under that name to tests that leave nothing behind."""
    with serving(stories, "--served-model-name", "stories") as server:
        yield server
