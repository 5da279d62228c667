"""`llmpack bench --triton` starts what it measures from bundles of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmpack.artifact.reader import open_artifact
from llmpack.bench.http_load import HttpRequest
from llmpack.bench.triton_deployments import CONTINUOUS, CONTINUOUS_2, DYNAMIC, Deployment, Models, deployed
from tests.triton.conftest import STORIES
from tests.triton.serving import PYTHON, triton_environment


@pytest.mark.parametrize("deployment", [DYNAMIC, CONTINUOUS, CONTINUOUS_2], ids=str)
def test_a_load_on_a_deployment(
    deployment: Deployment, stories8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in triton_environment().items():
        monkeypatch.setenv(name, value)
    requests = [HttpRequest("Once upon a time", None, count) for count in (3, 200, 5)]
    with deployed(deployment, Models(open_artifact(stories8), STORIES, 8), tmp_path / "bundle") as load:
        measured = load.run(requests, 3)
    assert [each.num_output_tokens for each in measured.requests] == [3, 200, 5]
    assert all(0 < each.ttft_s <= each.total_s for each in measured.requests)
    if deployment.system == "continuous":
        assert len(measured.requests[1].arrivals_s) > 1


def has_transformers() -> bool:
    found = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ('torch', 'transformers'))))"
    return PYTHON.exists() and subprocess.run([str(PYTHON), "-c", found], check=False).returncode == 0


@pytest.mark.skipif(not has_transformers(), reason="needs scripts/triton-environment --with-transformers")
def test_both_tables_and_the_latencies(stories8: Path) -> None:
    program = (
        "import sys, msgspec, pathlib\n"
        "from llmpack.bench.triton_bench import TritonBenchOptions, run_triton_bench\n"
        "options = TritonBenchOptions(pathlib.Path(sys.argv[2]), repeat=1, max_tokens=4)\n"
        "sys.stdout.buffer.write(msgspec.json.encode(run_triton_bench(pathlib.Path(sys.argv[1]), options)))\n"
    )
    command = [sys.executable, "-c", program, str(stories8), str(STORIES)]
    done = subprocess.run(command, capture_output=True, env=triton_environment(), check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    cells = {(each["system"], each["engine"], each["num_instances"], each["num_requests"]) for each in report["cells"]}
    ours = {(system, "llmpack", *rest) for system in ("dynamic", "continuous") for rest in ((1, 1), (1, 8), (2, 8))}
    theirs = {("sequential", "transformers", 1, 8), ("sequential", "transformers", 2, 8)}
    theirs |= {("dynamic", "transformers", 1, count) for count in (1, 8)}
    assert cells == ours | theirs
    assert report["left_out"] == []
    assert [each["concurrency"] for each in report["latencies"]] == [1, 8]
    assert all(each["execution_s"]["median"] > 0 for each in report["cells"])
