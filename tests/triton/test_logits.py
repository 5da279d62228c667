"""The targets `triton-ensemble` and `triton-logits` behind a real Triton server, byte for byte as they are emitted.

The backend that computes is the stand-in of `backends/onnxruntime`; core, ensemble scheduler and Python backend are
Triton's own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmpack.artifact.manifest import LOGITS_PATH
from llmpack.proof.rows import RowProgram
from llmpack.runtime.tokenizer import Tokenizer
from tests.triton.conftest import STORIES
from tests.triton.serving import PYTHON, Triton, serving, triton_environment

PROMPTS = ["Once upon a time, there was", "Tom", "One day a cat"]


def infer(server: Triton, model: str, **tensors: np.ndarray | list[str]) -> dict[str, Any]:
    inputs = [
        {"name": name, "shape": [len(value)], "datatype": "BYTES", "data": value}
        if isinstance(value, list)
        else {"name": name, "shape": value.shape, "datatype": "INT64", "data": value.ravel().tolist()}
        for name, value in tensors.items()
    ]
    answer: dict[str, Any] = server.client.post(
        f"{server.http_url}/v2/models/{model}/infer", json={"inputs": inputs}
    ).json()
    return answer


def logits_of(answer: dict[str, Any]) -> np.ndarray:
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"]) == ("logits", "FP32")
    return np.array(output["data"], np.float32).reshape(output["shape"])


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    tokenizer = Tokenizer.from_directory(STORIES)
    return [tokenizer.encode(prompt, add_special_tokens=True) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def expected(stories8: Path, rows: list[list[int]]) -> list[np.ndarray]:
    """Each prompt's logits, computed here and alone."""
    program = RowProgram(stories8 / LOGITS_PATH)
    return [program.run([row], pads_left=True)[0] for row in rows]


def assert_rows(given: np.ndarray, expected: list[np.ndarray]) -> None:
    assert given.shape[:2] == (len(expected), max(map(len, expected)))
    for row, reference in zip(given, expected, strict=True):
        np.testing.assert_allclose(row[-len(reference) :], reference, rtol=0, atol=1e-4)


def test_ragged_prompts_in_one_request(ensemble: Triton, expected: list[np.ndarray]) -> None:
    assert_rows(logits_of(infer(ensemble, "ensemble_model", prompt=PROMPTS)), expected)


def test_the_ensembles_logits_are_those_of_transformers(ensemble: Triton, rows: list[list[int]]) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
    given = logits_of(infer(ensemble, "ensemble_model", prompt=PROMPTS))
    for row, logits in zip(rows, given, strict=True):
        with torch.inference_mode():
            reference = model(torch.tensor([row])).logits[0].numpy()
        np.testing.assert_allclose(logits[-len(row) :], reference, rtol=0, atol=1e-3)


def test_one_prompt_is_its_row_of_many(ensemble: Triton, expected: list[np.ndarray]) -> None:
    """The tutorial's curl, with another model's name."""
    assert_rows(logits_of(infer(ensemble, "ensemble_model", prompt=PROMPTS[1:2])), expected[1:2])


@pytest.mark.parametrize("pads_left", [True, False], ids=["left", "right"])
def test_rows_tokenised_by_the_client(
    logits_server: Triton, rows: list[list[int]], expected: list[np.ndarray], pads_left: bool
) -> None:
    longest = max(map(len, rows))
    pads = [[0] * (longest - len(row)) for row in rows]
    input_ids = np.array([pad + row if pads_left else row + pad for pad, row in zip(pads, rows, strict=True)])
    ones = [[1] * len(row) for row in rows]
    mask = np.array([pad + one if pads_left else one + pad for pad, one in zip(pads, ones, strict=True)])
    given = logits_of(infer(logits_server, "model", input_ids=input_ids, attention_mask=mask))
    for logits, real, reference in zip(given, mask.astype(bool), expected, strict=True):
        np.testing.assert_allclose(logits[real], reference, rtol=0, atol=1e-4)


def check_scripts(server: Triton, bundle: Path, http_python: str) -> None:
    """Smoke test and both clients run, and the clients agree."""
    commands = [
        [str(bundle / "smoke.sh"), server.http_url],
        [http_python, str(bundle / "client_http.py"), *PROMPTS, "--url", server.http_url],
        [str(PYTHON), str(bundle / "client_grpc.py"), *PROMPTS, "--url", server.grpc_url],
    ]
    if bundle.name.endswith("logits"):
        commands[1][-1] = server.http_url.removeprefix("http://")  # tritonclient takes no scheme
    outputs = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=triton_environment())
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[1] == outputs[2]
    assert outputs[1].count("%") == 5 * len(PROMPTS)


def test_scripts_of_the_ensemble(ensemble: Triton, ensemble_bundle: Path) -> None:
    check_scripts(ensemble, ensemble_bundle, sys.executable)


def test_scripts_of_the_program_alone(logits_server: Triton, logits_bundle: Path) -> None:
    check_scripts(logits_server, logits_bundle, str(PYTHON))


TUTORIAL_CLIENT = """
import sys
import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import np_to_triton_dtype

with httpclient.InferenceServerClient(url=sys.argv[1], verbose=False, concurrency=32) as client:
    texts = np.array([prompt.encode("utf-8") for prompt in sys.argv[2:]], dtype=np.object_)
    tensor = httpclient.InferInput("prompt", texts.shape, np_to_triton_dtype(texts.dtype)).set_data_from_numpy(texts)
    wanted = [httpclient.InferRequestedOutput("logits")]
    calls = [client.async_infer("ensemble_model", model_version="1", inputs=[tensor], outputs=wanted) for _ in range(8)]
    shapes = {call.get_result().as_numpy("logits").shape for call in calls}
print(shapes)
"""


def test_many_asynchronous_requests_of_the_http_client(ensemble: Triton, expected: list[np.ndarray]) -> None:
    """As public tutorials ask an ensemble: eight requests under way at once, by model version and named output."""
    command = [str(PYTHON), "-c", TUTORIAL_CLIENT, ensemble.http_url.removeprefix("http://"), *PROMPTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=triton_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str({(3, max(map(len, expected)), expected[0].shape[-1])})


@pytest.mark.parametrize(
    ("prompts", "message"),
    [(["x y " * 600], "longer than what was compiled"), ([], "prompt")],
    ids=["too-long", "none"],
)
def test_bad_prompts_are_refused_in_words(ensemble: Triton, prompts: list[str], message: str) -> None:
    assert message in infer(ensemble, "ensemble_model", prompt=prompts)["error"]
    assert "outputs" in infer(ensemble, "ensemble_model", prompt=PROMPTS[:1])


def test_a_config_that_names_another_tensor_is_refused_by_the_backend(logits_bundle: Path, tmp_path: Path) -> None:
    """What shows that the stand-in looks: the tutorial's `output_0` is not in the graph."""
    broken = tmp_path / "broken"
    shutil.copytree(logits_bundle, broken)
    config = broken / "model" / "config.pbtxt"
    config.write_text(config.read_text().replace('"logits"', '"output_0"'))
    with serving(broken) as server:
        response = server.load("model")
    assert response.status_code == 400
    assert "unexpected inference output 'output_0', allowed outputs are: logits" in json.dumps(response.json())


def test_serve_refuses_an_altered_program(ensemble_bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(ensemble_bundle, broken)
    (broken / "ensemble_model-logits" / "1" / LOGITS_PATH).write_bytes(b"something else")
    environment = triton_environment() | {"TRITONSERVER": "true"}
    done = subprocess.run([str(broken / "serve.sh")], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert LOGITS_PATH in done.stderr
