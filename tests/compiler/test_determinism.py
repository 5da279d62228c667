"""The same inputs give the same bytes, also in another process with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from llmpack.artifact.manifest import MANIFEST_NAME
from llmpack.artifact.reader import read_manifest
from tests.golden.cases import CASES

pytestmark = [pytest.mark.slow, pytest.mark.compile]


@pytest.mark.parametrize(
    "case", [CASES[0], next(c for c in CASES if c.model_type == "gemma3_text")], ids=lambda c: c.name
)
def test_two_compiles_are_equal(case: object, tmp_path: Path) -> None:
    from tests.golden.models import write_model

    write_model(case, tmp_path / "checkpoint")  # type: ignore[arg-type]
    first, second = (compile_in_a_process(tmp_path, seed) for seed in ("1", "2"))
    names = sorted(str(path.relative_to(first)) for path in first.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(second)) for path in second.rglob("*") if path.is_file())
    for name in names:
        if name != MANIFEST_NAME:
            assert (first / name).read_bytes() == (second / name).read_bytes(), name
    one, two = read_manifest(first), read_manifest(second)
    assert msgspec.structs.replace(one, measured=two.measured) == two


def compile_in_a_process(directory: Path, hash_seed: str) -> Path:
    target = directory / f"artifact-{hash_seed}"
    shape = ["--max-seq-len", "64", "--batch-size", "2", "--prefill-buckets", "16", "--logits"]
    command = [sys.executable, "-m", "llmpack", "compile", str(directory / "checkpoint"), "-o", str(target), *shape]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": hash_seed})
    return target
