"""The target `triton` with two instances behind a real Triton server: one engine for both."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.triton.conftest import emit
from tests.triton.serving import Triton, serving

PROMPT = "Once upon a time"
LONG = {"temperature": 1, "max_tokens": 490, "ignore_eos": True}


@pytest.fixture(scope="module")
def two_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emit(stories8, tmp_path_factory.mktemp("two"), "triton", model_name="stories", num_instances=2)


@pytest.fixture(scope="module")
def two(two_bundle: Path) -> Iterator[Triton]:
    with serving(two_bundle, "stories") as server:
        wait_for(lambda: server.metric("llmpack:num_instances") == 2)
        yield server


def wait_for(is_true: Any, timeout_s: float = 20) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def ask(**sampling: Any) -> dict[str, Any]:
    text = json.dumps({"temperature": 0, "max_tokens": 40, **sampling})
    return {"model": "stories", "inputs": {"text_input": PROMPT, "stream": True, "sampling_parameters": text}}


def text_of(answer: dict[str, Any], choice: int = 0) -> str:
    assert answer["error"] is None
    assert answer["has_final"]
    return "".join(response["text_output"][choice] for response in answer["responses"])


def test_one_instance_holds_the_engine(two: Triton) -> None:
    """The weights are in one of the processes only."""
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in stubs_of(two)]
    assert sorted("model.safetensors" in each for each in maps) == [False, True]


def stubs_of(server: Triton) -> list[int]:
    """The processes of the model's instances."""
    found = []
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with contextlib.suppress(OSError):  # it has just ended
            is_stub = b"triton_python_backend_stub" in Path(f"/proc/{pid}/cmdline").read_bytes()
            if is_stub and os.getpgid(pid) == server.process.pid:
                found.append(pid)
    return found


def test_sixteen_streams_over_both_instances_share_the_batch(two: Triton) -> None:
    sampling = {"max_tokens": 490, "ignore_eos": True}
    (alone,) = two.ask([ask(**sampling)])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(two.ask, [ask(**sampling) for _ in range(16)])
        seen = []
        while not asked.done():
            seen.append([two.metric(f"llmpack:num_{name}") for name in ("requests_running", "guest_requests")])
    assert {text_of(answer) for answer in asked.result()} == {text_of(alone)}
    assert max(running for running, _ in seen) == 8  # all slots of the one engine
    assert 0 < max(guests for _, guests in seen) < 16


def test_two_choices(two: Triton) -> None:
    (answer,) = two.ask([ask(n=2, seed=5, temperature=1.5)])
    assert text_of(answer, 0) != text_of(answer, 1)


def test_cancel_and_disconnect_free_the_slots(two: Triton) -> None:
    asks = [ask(**LONG, n=16) | {"cancel_after": 1} for _ in range(4)]
    assert [len(answer["responses"]) for answer in two.ask(asks)] == [1] * 4
    two.wait_until_idle(5)
    url = f"{two.http_url}/v2/models/stories/generate_stream"
    body = {"text_input": PROMPT, "stream": True, "sampling_parameters": json.dumps(LONG | {"n": 16})}
    for _ in range(3):
        with two.client.stream("POST", url, json=body) as response:
            next(response.iter_lines())
    two.wait_until_idle(5)


def test_unloaded_and_loaded_again_and_again(two_bundle: Path) -> None:
    with serving(two_bundle, "stories") as server:
        for _ in range(3):
            together, (alone,) = server.ask([ask() for _ in range(8)]), server.ask([ask()])
            assert {text_of(answer) for answer in together} == {text_of(alone)}
            unload = server.client.post(f"{server.http_url}/v2/repository/models/stories/unload")
            assert unload.status_code == 200
            wait_for(lambda: not stubs_of(server))
            assert server.load("stories").status_code == 200


def test_a_changed_config_is_loaded_beside_the_old_one(two_bundle: Path, tmp_path: Path) -> None:
    """Triton loads the new instances while the old ones live."""
    bundle = Path(shutil.copytree(two_bundle, tmp_path / "bundle"))
    config = bundle / "stories" / "config.pbtxt"
    with serving(bundle, "stories") as server:
        assert server.generate("stories", text_input=PROMPT, return_num_output_tokens=True).status_code == 200
        config.write_text(config.read_text().replace('string_value: "16"', 'string_value: "3"'))
        assert server.load("stories").status_code == 200
        body = {"text_input": PROMPT, "return_num_output_tokens": True, "ignore_eos": True}
        wait_for(lambda: len(stubs_of(server)) == 2)
        assert [server.generate("stories", **body).json()["num_output_tokens"] for _ in range(4)] == [3] * 4


def test_sigterm_under_load_leaves_nothing(two_bundle: Path) -> None:
    """`serving` itself looks for processes and shared memory."""
    with serving(two_bundle, "stories") as server, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.ask, [ask(**LONG, n=2) for _ in range(4)]) for _ in range(2)]
        wait_for(lambda: server.metric("llmpack:num_requests_running") == 8)
        server.process.send_signal(signal.SIGTERM)
        answers = [answer for each in asked for answer in each.result()]
    assert all(answer["has_final"] or answer["error"] for answer in answers)
