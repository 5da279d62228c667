"""Each way of breaking an artifact's files is named and refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llmpack.artifact.reader import open_artifact
from llmpack.errors import ArtifactError, IntegrityError, ManifestError
from tests.artifact.samples import CONTENT

WEIGHTS = "weights/model.safetensors"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 10240\n"


def flip_byte(root: Path, name: str, index: int = 100) -> None:
    content = bytearray((root / name).read_bytes())
    content[index] ^= 1
    (root / name).write_bytes(content)


def replace_by_link(root: Path) -> None:
    (root / WEIGHTS).rename(root.parent / "elsewhere")
    (root / WEIGHTS).symlink_to(root.parent / "elsewhere")


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (lambda root: flip_byte(root, WEIGHTS), "altered"),
    "truncated": (lambda root: os.truncate(root / WEIGHTS, 5000), "truncated: 5000 bytes, expected 10240"),
    "too long": (lambda root: os.truncate(root / WEIGHTS, 10241), "too long: 10241 bytes"),
    "empty": (lambda root: os.truncate(root / WEIGHTS, 0), "empty, expected 10240"),
    "missing": (lambda root: (root / WEIGHTS).unlink(), "missing"),
    "lfs pointer": (lambda root: (root / WEIGHTS).write_bytes(LFS_POINTER), "Git LFS pointer"),
    "link": (replace_by_link, "symbolic link"),
    "folder in its place": (lambda root: [(root / WEIGHTS).unlink(), (root / WEIGHTS).mkdir()], "missing"),
}


@pytest.mark.parametrize("way", BREAKS)
def test_broken_file_is_named(artifact: Path, way: str) -> None:
    break_it, expected = BREAKS[way]
    break_it(artifact)
    with pytest.raises(IntegrityError) as caught:
        open_artifact(artifact)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{WEIGHTS}: ")
    assert expected in problem
    assert str(artifact) in str(caught.value)


@pytest.mark.parametrize("name", ["extra.bin", "programs/decode-9.onnx", "new/deep/file", ".hidden"])
def test_extra_file_is_named(artifact: Path, name: str) -> None:
    (artifact / name).parent.mkdir(parents=True, exist_ok=True)
    (artifact / name).write_bytes(b"x")
    with pytest.raises(IntegrityError) as caught:
        open_artifact(artifact)
    assert caught.value.problems == [f"{name}: not listed in the manifest"]


def test_extra_link_to_a_folder_is_named(artifact: Path, tmp_path: Path) -> None:
    (artifact / "linked").symlink_to(tmp_path)
    with pytest.raises(IntegrityError, match="linked: not listed"):
        open_artifact(artifact)


def test_all_problems_come_at_once(artifact: Path) -> None:
    (artifact / "config.json").unlink()
    (artifact / "extra").write_bytes(b"")
    flip_byte(artifact, WEIGHTS)
    with pytest.raises(IntegrityError) as caught:
        open_artifact(artifact)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["config.json", "extra", WEIGHTS]


def test_sizes_reads_no_content_but_sees_truncation(artifact: Path) -> None:
    flip_byte(artifact, WEIGHTS)
    assert open_artifact(artifact, verify="sizes").manifest.batch_size == 4
    os.truncate(artifact / WEIGHTS, 5000)
    with pytest.raises(IntegrityError, match="truncated"):
        open_artifact(artifact, verify="sizes")


@hypothesis_settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_found(artifact: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*CONTENT, "llmpack.json"]))
    original = (artifact / name).read_bytes()
    flip_byte(artifact, name, data.draw(st.integers(0, len(original) - 1)))
    try:
        # Changed white space of the manifest is no change of any fact.
        if name == "llmpack.json" and (artifact / name).read_bytes().split() == original.split():
            return
        with pytest.raises((IntegrityError, ManifestError)):
            open_artifact(artifact)
    finally:
        (artifact / name).write_bytes(original)


def test_copied_artifact_opens(artifact: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(artifact, copy)
    assert open_artifact(copy).manifest == open_artifact(artifact).manifest
    (tmp_path / "alias").symlink_to(copy)
    assert open_artifact(tmp_path / "alias").path == copy


def test_missing_directory_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such artifact.*llmpack compile"):
        open_artifact(tmp_path / "nothing")


def test_file_in_place_of_a_directory(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match="is a directory, this is a file"):
        open_artifact(artifact / "llmpack.json")
