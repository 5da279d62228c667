"""A real model, unquantised: its tokens are transformers' tokens, alone and in company."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmpack.artifact.reader import open_artifact
from llmpack.runtime.engine import Engine
from llmpack.runtime.load import load_engine
from tests.e2e.serving import compile_artifact, serving
from tests.e2e.smollm2 import GGUF, fetch_smollm2
from tests.runtime.letters import generate
from tests.runtime.shapes import make_request

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e]

NUM_TOKENS = 64
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Q: What is 12 times 12?\nA:",
    "List three fruits:\n1.",
    "Dear Sir or Madam,\n\nI am writing to",
    "To be, or not to be,",
    "The mitochondria is",
    "SELECT name FROM users WHERE",
    "Breaking news: scientists have discovered",
    "Die Hauptstadt von Deutschland ist",
    "Le chat est assis sur",
    "日本の首都は",
    '{"name": "Ada", "age":',
    "<html>\n<head>\n<title>",
    "import numpy as np\n\nx = np.",
    "Step 1: Preheat the oven to",
    "1, 1, 2, 3, 5, 8, 13,",
    "😀 means that someone is",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.fixture(scope="module")
def artifact_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("smollm2") / "artifact"
    return compile_artifact(fetch_smollm2(), target, "--max-seq-len", "256", "--batch-size", "8")


@pytest.fixture(scope="module")
def engine(artifact_path: Path) -> Engine:
    return load_engine(open_artifact(artifact_path))


@pytest.fixture(scope="module")
def expected(engine: Engine) -> dict[str, list[int]]:
    """transformers' greedy ids, from its own reading of the .gguf."""
    import torch
    from transformers import AutoModelForCausalLM

    path = fetch_smollm2()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=GGUF, dtype=torch.float32).eval()
    ids = {}
    for prompt in PROMPTS:
        inputs = torch.tensor([engine.tokenizer.encode(prompt, add_special_tokens=True)])
        output = model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=NUM_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        ids[prompt] = [int(i) for i in output[0, inputs.shape[1] :]]
    return ids


def greedy(engine: Engine, prompts: tuple[str, ...]) -> dict[str, list[int]]:
    requests = [
        make_request(prompt, tuple(engine.tokenizer.encode(prompt, add_special_tokens=True)), max_tokens=NUM_TOKENS)
        for prompt in prompts
    ]
    return {prompt: list(output.token_ids) for prompt, output in generate(engine, requests).items()}


def test_greedy_ids_alone(engine: Engine, expected: dict[str, list[int]]) -> None:
    for prompt in PROMPTS:
        assert greedy(engine, (prompt,))[prompt] == expected[prompt], prompt


def test_greedy_ids_with_all_in_flight(engine: Engine, expected: dict[str, list[int]]) -> None:
    assert greedy(engine, PROMPTS) == expected


def test_it_knows_the_capital_of_france(artifact_path: Path) -> None:
    """Through the HTTP API with streaming, with the script that the demo uses."""
    ask = Path(__file__).parents[2] / "scripts" / "ask.py"
    with serving(artifact_path) as served:
        command = [sys.executable, str(ask), served.url, "What is the capital of France?"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Paris" in answer


def test_compile_memory_is_bounded_by_the_weights(artifact_path: Path) -> None:
    measured = json.loads((artifact_path / "llmpack.json").read_text())["measured"]
    assert measured["peak_memory_bytes"] < 2.2 * measured["weights_bytes"]
