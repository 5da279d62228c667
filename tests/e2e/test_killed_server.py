"""A server that is killed leaves nothing behind, and the next one takes its port."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.e2e.serving import LLMPACK, serving

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e, pytest.mark.server]

BODY = {"model": "stories", "prompt": [1], "max_tokens": 250, "ignore_eos": True, "stream": True, "n": 4}


def snapshot(folder: Path) -> dict[str, int]:
    """Every entry and when it was last written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_kill_leaves_nothing_behind(stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("HOME", str(home))
    before = snapshot(stories)
    command = [*LLMPACK, "serve", str(stories), "--port", "0", "--served-model-name", "stories"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.stream("POST", url + "/v1/completions", json=BODY) as response:
            lines = response.iter_lines()
            next(lines)
            assert "/dev/shm/" not in Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
            process.kill()
            with pytest.raises(httpx.TransportError):
                list(lines)
    assert snapshot(stories) == before
    assert os.listdir(temporary) == []
    assert os.listdir(home) == []
    with serving(stories, "--port", url.rpartition(":")[2], "--served-model-name", "stories") as server:
        assert server.url == url
        assert httpx.get(url + "/health").status_code == 200
    subprocess.run([*LLMPACK, "verify", str(stories)], check=True, capture_output=True)
