"""`llmpack bench`: what it refuses, and every mode on a real artifact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmpack.artifact.schema import encode_schema
from llmpack.bench.schema import SCHEMA_PATH, build_schema
from llmpack.cli.app import app
from llmpack.errors import BenchError, UsageError
from tests.artifact.samples import write_sample
from tests.e2e.serving import compile_artifact, serving

STORIES = Path(__file__).parent.parent / "data" / "stories260K"
SHAPE = ("--max-seq-len", "192", "--batch-size", "2", "--prefill-buckets", "32", "--no-proof")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    write_sample(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_artifact(STORIES, tmp_path_factory.mktemp("bench") / "artifact", *SHAPE)


def bench(artifact: Path, *options: str) -> None:
    app(["bench", str(artifact), *options], standalone_mode=False)


def report_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, build_schema())
    return report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workload", "W1,W5"], "unknown workload in --workload; given: W5; allowed: W1, W2, W3, W4"),
        (["--concurrency", "1,two"], "not a list of numbers in --concurrency"),
        (["--concurrency", "0"], "no client in --concurrency"),
        (["--repeat", "0"], "nothing would be measured in --repeat"),
        (["--model", "m"], "as many names as servers are needed in --model"),
        (["--against", "http://a:1", "--against", "http://a:1"], "the same server is given twice"),
        (["--prompt-format", "tokens"], "unknown choice in --prompt-format; given: tokens; allowed: ids, text"),
        (["--triton", ".", "--plot", "x.png"], "means nothing beside --triton in --plot"),
        (["--triton", ".", "--concurrency", "8"], "means nothing beside --triton in --concurrency"),
        (["--triton", ".", "--num-threads", "2"], "means nothing beside --triton in --num-threads"),
        (["--triton", ".", "--prompt-format", "text"], "means nothing beside --triton in --prompt-format"),
        (["--max-tokens", "8"], "means nothing without --triton in --max-tokens"),
        (["--api-key", "secret"], "means nothing without --against in --api-key; given: a key"),
    ],
)
def test_options_that_cannot_be_used(sample: Path, options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        bench(sample, *options)
    assert message in str(caught.value)


def test_a_url_that_is_none(sample: Path) -> None:
    with pytest.raises(BenchError, match="not the URL"):
        bench(sample, "--against", "host:8000")


def test_a_plot_needs_what_is_drawn(sample: Path) -> None:
    with pytest.raises(UsageError, match="W1 is what is drawn"):
        bench(sample, "--workload", "W2", "--plot", "x.png")


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(UsageError, match=r"drawing needs matplotlib.*llmpack\[bench\]"):
        bench(sample, "--plot", "x.png")


@pytest.mark.parametrize(
    ("name", "message"), [("x.doc", "no format that can be drawn"), ("nowhere/x.png", "the directory does not exist")]
)
def test_a_plot_that_cannot_be_written(sample: Path, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bench(sample, "--plot", str(tmp_path / name))


def test_no_triton_server(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSERVER", "/nowhere/tritonserver")
    with pytest.raises(UsageError, match=r"no Triton server.*triton-environment --with-transformers"):
        bench(sample, "--triton", str(STORIES))


def test_published_schema_is_up_to_date() -> None:
    assert SCHEMA_PATH.read_bytes() == encode_schema(build_schema()), "run scripts/write_schema.py"
    jsonschema.Draft202012Validator.check_schema(build_schema())


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.server
def test_all_workloads_alone(stories: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.png"
    bench(stories, "--concurrency", "1,2,8", "--repeat", "2", "--json", "--plot", str(plot))
    report = report_of(capsys)
    cells = {(cell["workload"], cell["concurrency"]): cell for cell in report["measurements"]}
    assert list(cells) == [("W1", 1), ("W1", 2), ("W2", 1), ("W3", 2), ("W4", 2)]
    assert [(each["workload"], each["concurrency"]) for each in report["left_out"]] == [("W1", 8)]
    assert report["artifact"]["build_id"] == json.loads((stories / "llmpack.json").read_bytes())["build_id"]
    assert cells["W1", 2]["output_tokens"] == 2 * 128
    assert cells["W1", 2]["steps"]["num_steps"] >= 2 * 100
    assert 0 < cells["W1", 2]["steps"]["overhead_share"]["median"] < 1
    assert cells["W2", 1]["prompt_tokens"] == 191
    assert cells["W2", 1]["prefill_tokens_per_s"]["median"] > 0
    assert cells["W3", 2]["output_tokens"] == cells["W4", 2]["output_tokens"]
    assert cells["W4", 2]["target"] == "llmpack serve"
    assert all(cell["peak_memory_bytes"] > 20 << 20 for cell in cells.values())
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.server
@pytest.mark.parametrize("prompt_format", ["ids", "text"])
def test_beside_another_server(stories: Path, prompt_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workload", "W1,W3,W4", "--concurrency", "2", "--repeat", "1", "--prompt-format", prompt_format]
    with serving(stories, "--served-model-name", "other") as server:
        bench(stories, *options, "--against", server.url, "--model", "other", "--json")
    report = report_of(capsys)
    name = f"{server.url} other"
    assert [(cell["workload"], cell["target"]) for cell in report["measurements"]] == [
        ("W1", "llmpack serve"), ("W1", name), ("W4", "llmpack serve"), ("W4", name),
    ]  # fmt: skip
    assert [each["workload"] for each in report["comparisons"]] == ["W1", "W4"]
    assert all(cell["output_tokens"] > 0 and cell["notes"] is not None for cell in report["measurements"])
    assert all("ended early" not in note for cell in report["measurements"] for note in cell["notes"])
    assert [each["reason"] for each in report["left_out"]] == [
        "runs on the engine alone; W4 is the same load over HTTP"
    ]


@pytest.mark.slow
@pytest.mark.compile
def test_the_table_for_people(stories: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench(stories, "--workload", "W1,W2", "--concurrency", "2,4", "--repeat", "1")
    lines = capsys.readouterr().out.splitlines()
    assert "stories260K, onnxruntime, float32" in lines[0]
    assert lines[2].split()[:3] == ["load", "target", "at"]
    assert lines[3].startswith("W1    engine")
    assert "prompt" in lines[4]
    assert any("left out: more than the compiled batch_size, 2" in line for line in lines)


@pytest.mark.slow
@pytest.mark.compile
def test_sigterm_ends_the_servers_too(stories: Path) -> None:
    command = [sys.executable, "-m", "llmpack", "bench", str(stories), "--workload", "W4", "--repeat", "1000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        wait_for_children(process.pid)
        process.terminate()
        assert process.wait(timeout=90) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


def wait_for_children(process_id: int) -> None:
    children = Path(f"/proc/{process_id}/task/{process_id}/children")
    deadline_s = time.monotonic() + 60
    while not children.read_text().strip():
        assert time.monotonic() < deadline_s, "no server was started"
        time.sleep(0.05)
