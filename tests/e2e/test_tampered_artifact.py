"""An artifact that is not what the compile wrote is refused before anything of it is used."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.serving import LLMPACK

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e]

WEIGHTS = "weights/model.safetensors"


def flip_byte(artifact: Path) -> None:
    path = artifact / WEIGHTS
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(artifact: Path) -> None:
    path = artifact / "programs" / "decode-4.onnx"
    os.truncate(path, path.stat().st_size - 1)


def remove(artifact: Path) -> None:
    (artifact / "tokenizer.json").unlink()


def add(artifact: Path) -> None:
    (artifact / "extra.bin").write_bytes(b"x")


def renew_schema(artifact: Path) -> None:
    path = artifact / "llmpack.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "schema_version": 99}), encoding="utf-8")


DEFECTS = [
    (flip_byte, 1, f"{WEIGHTS}: altered"),
    (truncate, 1, "programs/decode-4.onnx: truncated"),
    (remove, 1, "tokenizer.json: missing"),
    (add, 1, "extra.bin: not listed in the manifest"),
    (renew_schema, 2, "the manifest is newer than this llmpack"),
]


@pytest.mark.parametrize(("damage", "exit_code", "named"), DEFECTS)
def test_a_damaged_artifact_is_refused(
    damage: Callable[[Path], None], exit_code: int, named: str, stories: Path, tmp_path: Path
) -> None:
    artifact = Path(shutil.copytree(stories, tmp_path / "artifact"))
    damage(artifact)
    port = free_port()
    for command in (["serve", artifact, "--port", str(port)], ["generate", artifact, "Once"], ["chat", artifact]):
        run = subprocess.run(
            [*LLMPACK, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert (run.returncode, run.stdout) == (exit_code, "")
        assert named in run.stderr
        assert "Traceback" not in run.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
