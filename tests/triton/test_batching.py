"""The target `triton-python` behind a real Triton server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.triton.serving import PYTHON, TUTORIALS, Triton, triton_environment

PROMPTS = ["Once upon a time", "One day a cat", "Tom had a"]
GREEDY = json.dumps({"temperature": 0, "max_tokens": 16})


def ask(*prompts: str, **inputs: Any) -> dict[str, Any]:
    rows = {"prompt": list(prompts), "sampling_parameters": [GREEDY] * len(prompts)} | inputs
    return {"model": "llamav2", "unary": True, "inputs": rows}


def texts_of(answer: dict[str, Any]) -> list[str]:
    assert answer["error"] is None
    (response,) = answer["responses"]
    texts: list[str] = response["generated_text"]
    return texts


def test_smoke_script_and_clients(batching: Triton, batching_bundle: Path) -> None:
    commands = [
        [str(batching_bundle / "smoke.sh"), batching.http_url],
        [sys.executable, str(batching_bundle / "client_http.py"), *PROMPTS, "--url", batching.http_url],
        [str(PYTHON), str(batching_bundle / "client_grpc.py"), *PROMPTS, "--url", batching.grpc_url],
    ]
    outputs = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=triton_environment())
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[1] == outputs[2]
    assert "there was a little girl" in outputs[1]


def test_rows_of_one_request_are_each_as_alone(batching: Triton) -> None:
    together, *alone = batching.ask([ask(*PROMPTS), *(ask(prompt) for prompt in PROMPTS)])
    assert texts_of(together) == [texts_of(answer)[0] for answer in alone]


def test_curl_over_infer_and_generate(batching: Triton) -> None:
    """The tutorial's request with the batch dimension that it lacks."""
    tensor = {"name": "prompt", "shape": [1, 1], "datatype": "BYTES", "data": ["Once upon a time"]}
    url = f"{batching.http_url}/v2/models/llamav2"
    inferred = batching.client.post(f"{url}/infer", json={"inputs": [tensor], "parameters": {"temperature": 0}})
    generated = batching.generate("llamav2", prompt="Once upon a time", temperature=0)
    assert inferred.json()["outputs"][0]["data"] == [generated.json()["generated_text"]]


def test_the_tutorials_clients(batching: Triton) -> None:
    commands = [
        [str(PYTHON), str(TUTORIALS / "http_client.py"), batching.http_url.removeprefix("http://"), "llamav2"],
        [str(TUTORIALS / "curl.sh"), batching.http_url, "llamav2"],
    ]
    done = [subprocess.run(command, capture_output=True, text=True, check=False) for command in commands]
    assert [each.returncode for each in done] == [0, 0], done
    assert done[0].stdout.count("[b") == 3  # three rows of one text
    assert json.loads(done[1].stdout)["outputs"][0]["shape"] == [1, 1]


def test_batches_really_batch(batching: Triton) -> None:
    """64 requests of one row: at most 64/8 batches and a few more."""
    names = ("llmpack:batches_total", "llmpack:batch_rows_total", "nv_inference_exec_count")
    before = [batching.metric(name) for name in names]
    answers = batching.ask([ask(PROMPTS[0]) for _ in range(64)])
    after = [batching.metric(name) for name in names]
    batches, rows, executions = (b - a for a, b in zip(before, after, strict=True))
    assert len({texts_of(answer)[0] for answer in answers}) == 1
    assert rows == 64
    assert batches == executions
    assert batches <= 64 / 8 + 4


def test_a_bad_row_fails_its_request_alone(batching: Triton) -> None:
    good, bad, long = batching.ask(
        [ask(PROMPTS[0]), ask(PROMPTS[0], sampling_parameters=['{"top_p": 7}']), ask("a b c d " * 300)]
    )
    assert texts_of(good)
    assert "top_p must be a number in its range" in bad["error"]
    assert "maximum context length is 512 tokens" in long["error"]


def test_one_sampling_per_row_and_one_choice(batching: Triton) -> None:
    sampling = [json.dumps({"temperature": 0, "max_tokens": count}) for count in (1, 5)]
    short, many = batching.ask(
        [
            ask(*PROMPTS[:2], sampling_parameters=sampling),
            ask(PROMPTS[0], sampling_parameters=['{"n": 2}']),
        ]
    )
    assert len(texts_of(short)[0].split()) < len(texts_of(short)[1].split())
    assert "one text per prompt" in many["error"]
