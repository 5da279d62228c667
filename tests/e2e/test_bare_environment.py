"""Serving needs no compiler: an artifact runs where torch, transformers and onnx are not installed."""

from __future__ import annotations

import json
import signal
import subprocess
import venv
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parent.parent.parent
COMPILERS = ("torch", "transformers", "onnx", "onnxscript", "gguf")

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e, pytest.mark.server]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with llmpack's base dependencies and nothing else."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=True, symlinks=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
    return python


def test_compilers_are_absent(bare_python: Path) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {COMPILERS!r} if find_spec(name)])"
    assert subprocess.check_output([bare_python, "-c", code], text=True) == "[]\n"


def test_serve_answers_and_stops(bare_python: Path, stories: Path) -> None:
    command = [bare_python, "-m", "llmpack", "serve", stories, "--port", "0", "--served-model-name", "stories"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            body = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
            headers = {"Content-Type": "application/json"}
            with urlopen(Request(f"{url}/v1/completions", json.dumps(body).encode(), headers), timeout=30) as response:
                answer = json.load(response)
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=30) == 0
        finally:
            server.kill()
    assert answer["choices"][0]["text"].startswith(", there was a little girl named Lily.")


def test_other_commands_work(bare_python: Path, stories: Path) -> None:
    for arguments in (["inspect", stories], ["verify", stories], ["generate", stories, "Once", "--max-tokens", "4"]):
        run = subprocess.run([bare_python, "-m", "llmpack", *arguments], capture_output=True, text=True, check=True)
        assert run.stdout


def test_compile_says_what_to_install(bare_python: Path, tmp_path: Path) -> None:
    model = ROOT / "tests" / "data" / "stories260K"
    command = [bare_python, "-m", "llmpack", "compile", model, "-o", tmp_path / "out"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "pip install 'llmpack[compile]'" in run.stderr
    assert "Traceback" not in run.stderr
