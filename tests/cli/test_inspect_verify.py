"""`inspect` and `verify` as a person and as a program would use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.artifact.samples import CONTENT, write_sample


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write_sample(tmp_path / "model")
    return tmp_path / "model"


def llmpack(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llmpack", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_inspect_prints_the_facts_on_stdout(artifact: Path) -> None:
    run = llmpack("inspect", artifact)
    assert (run.returncode, run.stderr) == (0, "")
    for fact in ("tiny-llama", "64", "prefill-32, decode-1, decode-4", "eos 2, 7", "2 layers (1 sliding)"):
        assert fact in run.stdout


def test_inspect_json_is_the_manifest(artifact: Path) -> None:
    run = llmpack("inspect", artifact, "--json")
    assert json.loads(run.stdout) == json.loads((artifact / "llmpack.json").read_bytes())


def test_verify_sound(artifact: Path) -> None:
    run = llmpack("verify", artifact)
    assert (run.returncode, run.stderr) == (0, "")
    assert f"{len(CONTENT)} files" in run.stdout
    assert "all as compiled" in run.stdout
    assert "1 of 1 cases passed, against LlamaForCausalLM" in run.stdout
    assert "2e-06, allowed 0.001" in run.stdout


def test_verify_names_every_file_at_fault(artifact: Path) -> None:
    os.truncate(artifact / "proof.json", 0)
    (artifact / "extra").write_text("")
    run = llmpack("verify", artifact)
    assert run.returncode == 1
    assert "error: extra: not listed" in run.stderr
    assert "error: proof.json: empty" in run.stderr


def test_verify_json_reports_on_stdout_alone(artifact: Path) -> None:
    (artifact / "config.json").unlink()
    run = llmpack("verify", artifact, "--json")
    report = json.loads(run.stdout)
    assert run.returncode == 1
    assert report["ok"] is False
    assert report["problems"] == ["config.json: missing"]


def test_verify_without_proof_says_so(artifact: Path) -> None:
    from llmpack.artifact.writer import ArtifactWriter
    from tests.artifact.samples import fill, make_draft

    with ArtifactWriter(artifact.parent / "unproven") as writer:
        fill(writer.path)
        (writer.path / "proof.json").unlink()
        writer.commit(make_draft())
    assert "compiled without one" in llmpack("verify", artifact.parent / "unproven").stdout


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_newer_schema_is_unusable_input(artifact: Path, command: str) -> None:
    facts = json.loads((artifact / "llmpack.json").read_bytes())
    (artifact / "llmpack.json").write_text(json.dumps({**facts, "schema_version": 99}))
    run = llmpack(command, artifact)
    assert run.returncode == 2
    assert run.stderr.startswith("error: the manifest is newer than this llmpack")
    assert run.stdout == ""
    assert "Traceback" not in run.stderr


def test_usage_errors_exit_with_two() -> None:
    run = llmpack("inspekt")
    assert run.returncode == 2
    assert "inspect" in run.stderr
    assert llmpack("inspect").returncode == 2


def test_help_documents_the_exit_codes() -> None:
    assert "Exit codes: 0 done; 1 a check failed" in llmpack("--help").stdout.replace("\n", " ")
