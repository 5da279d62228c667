"""An artifact appears whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from llmpack.artifact.hashing import hash_file
from llmpack.artifact.reader import open_artifact
from llmpack.artifact.writer import ArtifactWriter
from llmpack.errors import ArtifactError, CompileError, UsageError
from tests.artifact.samples import CONTENT, fill, make_draft, write_sample


def temporary_directories(parent: Path) -> list[Path]:
    return list(parent.glob(".*.llmpack-tmp-*"))


def test_committed_artifact_opens_and_nothing_else_is_left(tmp_path: Path) -> None:
    manifest = write_sample(tmp_path / "new" / "model")
    assert open_artifact(tmp_path / "new" / "model").manifest == manifest
    assert [record.path for record in manifest.files] == sorted(CONTENT)
    assert manifest.measured.artifact_bytes == sum(map(len, CONTENT.values()))
    assert os.listdir(tmp_path / "new") == ["model"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new" / "model").stat().st_mode) == 0o777 & ~umask


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    write_sample(tmp_path / "a")
    write_sample(tmp_path / "b")
    assert (tmp_path / "a/llmpack.json").read_bytes() == (tmp_path / "b/llmpack.json").read_bytes()


@pytest.mark.parametrize("kind", ["empty directory", "artifact", "file", "dangling link"])
def test_existing_target_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "model"
    if kind == "empty directory":
        target.mkdir()
    elif kind == "artifact":
        write_sample(target)
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = os.listdir(tmp_path)
    with pytest.raises(UsageError, match="exists already"), ArtifactWriter(target):
        pytest.fail("entered")
    assert os.listdir(tmp_path) == before


def test_target_made_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists already"), ArtifactWriter(tmp_path / "model") as writer:
        fill(writer.path)
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "mine").write_text("mine")
        writer.commit(make_draft())
    assert os.listdir(tmp_path / "model") == ["mine"]
    assert temporary_directories(tmp_path) == []


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broke"), ArtifactWriter(tmp_path / "model") as writer:
        fill(writer.path)
        raise RuntimeError("broke")
    assert os.listdir(tmp_path) == []


def test_without_commit_nothing_appears(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "model") as writer:
        fill(writer.path)
    assert os.listdir(tmp_path) == []


def test_contradicting_draft_is_refused(tmp_path: Path) -> None:
    draft = msgspec.structs.replace(make_draft(), batch_size=5)
    with pytest.raises(CompileError, match="decode_buckets"), ArtifactWriter(tmp_path / "model") as writer:
        fill(writer.path)
        writer.commit(draft)
    assert os.listdir(tmp_path) == []


def test_links_cannot_be_committed(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="links"), ArtifactWriter(tmp_path / "model") as writer:
        fill(writer.path)
        (writer.path / "link").symlink_to(tmp_path)
        writer.commit(make_draft())


def test_unwritable_parent_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write there"), ArtifactWriter(tmp_path / "file" / "model"):
        pytest.fail("entered")


def test_temporary_directory_does_not_load(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "model") as writer:
        assert writer.path.parent == tmp_path  # the same file system: renaming is one step
        write_sample(tmp_path / "other")
        (tmp_path / "other" / "llmpack.json").rename(writer.path / "llmpack.json")
        with pytest.raises(ArtifactError, match="has not finished"):
            open_artifact(writer.path)


def test_two_compiles_to_one_target_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "model") as first:
        fill(first.path)
        with ArtifactWriter(tmp_path / "model") as second:
            assert second.path != first.path
        first.commit(make_draft())
    open_artifact(tmp_path / "model")


KILLED = """
import sys, time
from pathlib import Path
import llmpack.artifact.writer as module
from tests.artifact.samples import fill, make_draft

def pause(*_, **__):
    print("here", flush=True)
    time.sleep(60)

moment, target = sys.argv[1:]
if moment != "filling":
    owner, name = {"hashing": (module, "hash_files"), "syncing": (module, "_sync_directories"),
                   "renaming": (Path, "rename")}[moment]
    setattr(owner, name, pause)
with module.ArtifactWriter(target) as writer:
    fill(writer.path)
    if moment == "filling":
        pause()
    writer.commit(make_draft())
"""


@pytest.mark.parametrize("moment", ["filling", "hashing", "syncing", "renaming"])
def test_kill_leaves_nothing_that_loads_and_a_rerun_succeeds(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "model"
    command = [sys.executable, "-c", KILLED, moment, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
    assert not target.exists()
    (left,) = temporary_directories(tmp_path)
    with pytest.raises(ArtifactError):
        open_artifact(left)
    write_sample(target)
    open_artifact(target)
    assert temporary_directories(tmp_path) == []


def test_running_compile_is_not_cleaned_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, "filling", str(tmp_path / "model")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            (running,) = temporary_directories(tmp_path)
            write_sample(tmp_path / "model")
            assert (running / "config.json").exists()
        finally:
            process.kill()
            process.wait(timeout=10)


def test_hashing_reads_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as stream:
        stream.truncate(256 * 1024 * 1024)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert hash_file(path) == "a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024
