"""The target `triton` behind a real Triton server."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.triton.conftest import emit
from tests.triton.serving import PYTHON, TUTORIALS, Triton, serving, triton_environment

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "max_tokens": 12}


def ask(stream: bool = True, sampling: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
    text = json.dumps(GREEDY if sampling is None else sampling)
    return {
        "model": "stories",
        "inputs": {"text_input": PROMPT, "stream": stream, "sampling_parameters": text, **inputs},
    }


def text_of(answer: dict[str, Any], choice: int = 0) -> str:
    assert answer["error"] is None
    assert answer["has_final"]
    return "".join(response["text_output"][choice] for response in answer["responses"])


def test_smoke_script_and_clients(streaming: Triton, streaming_bundle: Path) -> None:
    commands = [
        [str(streaming_bundle / "smoke.sh"), streaming.http_url],
        [sys.executable, str(streaming_bundle / "client_http.py"), PROMPT, "--url", streaming.http_url],
        [str(PYTHON), str(streaming_bundle / "client_grpc.py"), PROMPT, "--url", streaming.grpc_url],
    ]
    outputs = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=triton_environment())
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[1] == outputs[2]
    assert "there was" in outputs[1]


def test_streamed_text_is_the_whole_text(streaming: Triton) -> None:
    whole, streamed, short = streaming.ask([ask(stream=False), ask(), ask(stream=False, exclude_input_in_output=True)])
    assert text_of(whole) == PROMPT + text_of(streamed)
    assert text_of(short) == text_of(streamed)
    assert len(whole["responses"]) == 1
    assert len(streamed["responses"]) > 1


def test_generate_and_generate_stream(streaming: Triton) -> None:
    body = {"text_input": PROMPT, **GREEDY}
    whole = streaming.generate("stories", stream=False, **body)
    events = streaming.generate_stream("stories", stream=True, **body)
    assert whole.status_code == 200
    assert whole.json()["text_output"] == PROMPT + "".join(event["text_output"] for event in events)
    # Without `stream` the one event has everything.
    (event,) = streaming.generate_stream("stories", **body)
    assert event["text_output"] == whole.json()["text_output"]


def test_the_guides_client_prints_the_streamed_text(streaming: Triton) -> None:
    command = [str(PYTHON), str(TUTORIALS / "stream_client.py"), streaming.grpc_url, "stories"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 10


def test_sixteen_streams_at_once_are_each_as_alone(streaming: Triton) -> None:
    prompts = [f"{PROMPT} there was a {word}" for word in ("cat", "dog", "girl", "boy")] * 4
    asks = [ask(text_input=prompt, sampling={"temperature": 0, "max_tokens": 40}) for prompt in prompts]
    alone = [text_of(streaming.ask([one])[0]) for one in asks[:4]]
    together = [text_of(answer) for answer in streaming.ask(asks)]
    assert together == alone * 4


def test_two_choices(streaming: Triton) -> None:
    sampling = {"n": 2, "seed": 5, "temperature": 1.5, "max_tokens": 20}
    whole, streamed = streaming.ask([ask(stream=False, sampling=sampling), ask(sampling=sampling)])
    texts = whole["responses"][0]["text_output"]
    assert len(set(texts)) == 2
    assert [PROMPT + text_of(streamed, choice) for choice in (0, 1)] == texts


LONG = {"temperature": 1, "n": 64, "max_tokens": 490, "ignore_eos": True}  # minutes of work


def test_cancel_frees_the_slots(streaming: Triton) -> None:
    (answer,) = streaming.ask([ask(sampling=LONG) | {"cancel_after": 1}])
    assert len(answer["responses"]) == 1
    streaming.wait_until_idle(5)
    assert streaming.generate("stories", text_input=PROMPT).status_code == 200


def test_disconnect_frees_the_slots(streaming: Triton) -> None:
    url = f"{streaming.http_url}/v2/models/stories/generate_stream"
    body = {"text_input": PROMPT, "stream": True, "sampling_parameters": json.dumps(LONG)}
    with streaming.client.stream("POST", url, json=body) as response:
        next(response.iter_lines())
    streaming.wait_until_idle(5)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ('{"top_p": 7}', "top_p must be a number in its range; given: 7"),
        ('{"temprature": 0}', "Did you mean temperature?"),
        ('{"max_tokens": "many"}', "max_tokens cannot be read; given: many; allowed: an integer"),
        ('{"lora_name": "x"}', "LoRA feature is not enabled."),
        ('{"stop_token_ids": [512]}', "stop_token_ids has a token id outside the vocabulary; given: 512"),
        ('{"prompt_logprobs": 1}', "unknown or unsupported sampling parameter prompt_logprobs"),
        ("[]", "sampling_parameters must be a JSON object"),
        ("{", "sampling_parameters is not valid JSON"),
    ],
)
def test_bad_sampling_parameters_are_named(streaming: Triton, sampling: str, message: str) -> None:
    response = streaming.generate("stories", text_input=PROMPT, sampling_parameters=sampling)
    assert response.status_code == 400
    assert message in response.json()["error"]
    assert "Traceback" not in response.text


def test_other_refusals(streaming: Triton) -> None:
    too_long, echo, invalid = streaming.ask(
        [ask(text_input=PROMPT * 200), ask(exclude_input_in_output=False), ask(sampling={"n": 100000})]
    )
    assert "maximum context length is 512 tokens" in too_long["error"]
    assert "When streaming, `exclude_input_in_output` = False is not allowed." in echo["error"]
    assert "n must be an integer in its range" in invalid["error"]


def test_strings_spell_numbers_and_the_length_is_capped(streaming: Triton) -> None:
    sampling = {"temperature": "0", "max_tokens": "4000", "ignore_eos": "true"}
    flags = {f"return_{name}": True for name in ("finish_reason", "num_input_tokens", "num_output_tokens")}
    (answer,) = streaming.ask([ask(stream=False, sampling=sampling, **flags)])
    (response,) = answer["responses"]
    assert response["finish_reason"] == ["length"]
    assert response["num_input_tokens"] + response["num_output_tokens"][0] == 512


def test_default_length_is_sixteen_tokens(streaming: Triton) -> None:
    body = {"text_input": PROMPT, "return_num_output_tokens": True, "ignore_eos": True}
    assert streaming.generate("stories", **body).json()["num_output_tokens"] == 16


FLAGS = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")


def test_every_combination_of_extra_outputs(streaming: Triton) -> None:
    """Stream or not, three ways to ask for logprobs, each flag absent, true or false: 2 * 3 * 3**5."""
    cases = list(itertools.product((True, False), (None, 0, 2), *([(None, True, False)] * len(FLAGS))))
    assert len(cases) == 1458
    asks = []
    for is_streamed, num_logprobs, *values in cases:
        flags = {f"return_{name}": value for name, value in zip(FLAGS, values, strict=True) if value is not None}
        sampling = {"temperature": 0, "max_tokens": 4, **({} if num_logprobs is None else {"logprobs": num_logprobs})}
        asks.append(ask(is_streamed, sampling, **flags))
    answers: list[dict[str, Any]] = []
    for start in range(0, len(asks), 200):  # no more than the queue holds
        answers += streaming.ask(asks[start : start + 200])
    for (is_streamed, num_logprobs, *values), answer in zip(cases, answers, strict=True):
        wanted = {name for name, value in zip(FLAGS, values, strict=True) if value}
        check_extra_outputs(answer, wanted, num_logprobs, is_streamed=is_streamed)


def check_extra_outputs(
    answer: dict[str, Any], wanted: set[str], num_logprobs: int | None, *, is_streamed: bool
) -> None:
    assert answer["error"] is None
    responses = answer["responses"]
    assert is_streamed or len(responses) == 1
    for response in responses:
        assert response.keys() == {"text_output", *wanted}
    if "finish_reason" in wanted:
        assert [r["finish_reason"] for r in responses] == [["None"]] * (len(responses) - 1) + [["length"]]
    if "num_input_tokens" in wanted:
        assert {r["num_input_tokens"] for r in responses} == {len(PROMPT.split()) + 1}
    if "num_output_tokens" in wanted:
        assert sum(r["num_output_tokens"][0] for r in responses) == 4
    if "cumulative_logprob" in wanted:
        sums = [r["cumulative_logprob"][0] for r in responses]
        assert all(math.isfinite(value) and value < 0 for value in sums)
        assert sums == sorted(sums, reverse=True)
    if "logprobs" in wanted:
        check_logprobs([json.loads(r["logprobs"][0]) for r in responses], num_logprobs)


def check_logprobs(parts: list[Any], num_logprobs: int | None) -> None:
    if num_logprobs is None:
        assert parts == [None] * len(parts)
        return
    entries = [entry for part in parts for entry in part]
    assert len(entries) == 4
    for entry in entries:
        assert len(entry) == max(1, num_logprobs)  # greedy: the chosen token is the best one
        for token_id, fields in entry.items():
            assert token_id.isdecimal()
            assert fields.keys() == {"logprob", "rank", "decoded_token"}
            assert fields["logprob"] <= 0


def test_metrics_count_requests(streaming: Triton) -> None:
    names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_params_n_count")
    before = [streaming.metric(name) for name in names]
    streaming.ask([ask(sampling={"max_tokens": 7, "n": 3, "ignore_eos": True})])
    after = [streaming.metric(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [5, 21, 1]


def test_unloaded_and_loaded_again(streaming_bundle: Path) -> None:
    with serving(streaming_bundle, "stories") as server:
        before = server.generate("stories", text_input=PROMPT, **GREEDY).json()
        unload = server.client.post(f"{server.http_url}/v2/repository/models/stories/unload")
        assert unload.status_code == 200
        deadline_s = time.monotonic() + 20
        while server.client.get(f"{server.http_url}/v2/models/stories/ready").status_code == 200:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert server.load("stories").status_code == 200
        assert server.generate("stories", text_input=PROMPT, **GREEDY).json() == before
        assert server.metric("vllm:request_params_n_count") >= 1


def test_tampered_artifact_does_not_load_and_the_file_is_named(streaming_bundle: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(streaming_bundle, tmp_path / "broken"))
    weights = broken / "stories" / "1" / "artifact" / "weights" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with serving(broken) as server:
        response = server.load("stories")
        assert response.status_code == 400
        assert "weights/model.safetensors: altered" in response.text


def show_with_client(server: Triton, bundle: Path, name: str) -> str:
    url = server.grpc_url if "grpc" in name else server.http_url
    command = [str(PYTHON), str(bundle / name), PROMPT, "--url", url, "--max-tokens", "12"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_old_release_streams_prompt_and_text_so_far(stories8: Path, tmp_path: Path) -> None:
    bundle = emit(stories8, tmp_path, "triton", model_name="stories", triton_release="24.01", has_absolute_paths=True)
    with serving(bundle, "stories") as server:
        (answer,) = server.ask([ask()])
        shown = [show_with_client(server, bundle, name) for name in ("client_http.py", "client_grpc.py")]
        texts = [response["text_output"][0] for response in answer["responses"]]
        whole = server.generate("stories", text_input=PROMPT, **GREEDY).json()["text_output"]
        refused = server.generate("stories", text_input=PROMPT, return_finish_reason=True)
    assert texts[-1] == whole
    assert shown == [whole + "\n"] * 2
    assert all(text.startswith(PROMPT) and whole.startswith(text) for text in texts)
    assert [len(text) for text in texts] == sorted({len(text) for text in texts})
    assert "return_finish_reason" in refused.text


def test_sigterm_under_load_finishes_the_stream_and_leaves_nothing(streaming_bundle: Path) -> None:
    """`serving` itself looks for processes and shared memory."""
    with serving(streaming_bundle, "stories") as server:
        url = f"{server.http_url}/v2/models/stories/generate_stream"
        sampling = json.dumps({"n": 32, "max_tokens": 100, "ignore_eos": True})
        body = {"text_input": PROMPT, "stream": True, "sampling_parameters": sampling, "return_finish_reason": True}
        with server.client.stream("POST", url, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data:"))["finish_reason"] == ["length"] * 32
