"""What a compile refuses before it writes anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from llmpack.compiler.compile import prepare
from llmpack.errors import CheckpointError, CheckpointNotFound, PlanError, UnsupportedArchitecture, UsageError
from llmpack.plan.options import CompileOptions

STORIES = Path(__file__).parents[1] / "data" / "stories260K"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORIES, tmp_path / "checkpoint"))


def options(model: Path | str, output: Path, **changes: Any) -> CompileOptions:
    return CompileOptions(model=str(model), output=output, **changes)


def test_a_good_checkpoint_is_planned_and_nothing_written(checkpoint: Path, tmp_path: Path) -> None:
    prepared = prepare(options(checkpoint, tmp_path / "out"))
    assert prepared.weights.tied
    assert prepared.weights_bytes == 4 * 260032
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_a_checkpoint_without_tokenizer_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json.*save_pretrained"):
        prepare(options(checkpoint, tmp_path / "out"))


def test_an_existing_output_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        prepare(options(checkpoint, tmp_path / "out"))


def test_an_unknown_architecture_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(UnsupportedArchitecture, match="mamba"):
        prepare(options(checkpoint, tmp_path / "out"))


@pytest.mark.parametrize("changes", [{"engine": "foo"}, {"quantize": "int3"}, {"tensor_parallel_size": 4}], ids=str)
def test_choices_are_checked_before_the_model_is_looked_for(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        prepare(options(tmp_path / "nothing-here", tmp_path / "out", **changes))


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="nothing-here"):
        prepare(options(tmp_path / "nothing-here", tmp_path / "out"))
