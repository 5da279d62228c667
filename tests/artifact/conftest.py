from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifact.samples import write_sample


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A sound artifact to break in one way."""
    write_sample(tmp_path / "model")
    return tmp_path / "model"
