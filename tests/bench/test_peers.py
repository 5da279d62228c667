"""What `benchmarks/run.py` is made of, as far as it needs no peer from the package index."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
STORIES = Path(__file__).parent.parent / "data" / "stories260K"
pytestmark = [pytest.mark.slow, pytest.mark.compile]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny llama of random weights, in bfloat16 as random_checkpoint.py writes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_gguf_file_holds_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    import gguf
    from transformers import LlamaForCausalLM

    target = tmp_path / "model.gguf"
    subprocess.run(
        [sys.executable, str(BENCHMARKS / "drivers" / "write_gguf.py"), str(checkpoint), str(target), "F32"], check=True
    )
    tensors = {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(target).tensors}
    weights = {
        name: value.float().numpy() for name, value in LlamaForCausalLM.from_pretrained(checkpoint).state_dict().items()
    }
    assert len(tensors) == len(weights)
    np.testing.assert_array_equal(tensors["token_embd.weight"], weights["model.embed_tokens.weight"])
    np.testing.assert_array_equal(tensors["blk.1.ffn_down.weight"], weights["model.layers.1.mlp.down_proj.weight"])
    query = weights["model.layers.0.self_attn.q_proj.weight"]
    np.testing.assert_array_equal(
        tensors["blk.0.attn_q.weight"][:4], query[[0, 8, 1, 9]]
    )  # head_dim 16: i beside i + 8
    np.testing.assert_array_equal(tensors["blk.0.attn_v.weight"], weights["model.layers.0.self_attn.v_proj.weight"])


def test_a_driver_answers_with_every_token() -> None:
    driver = BENCHMARKS / "drivers" / "transformers_driver.py"
    requests = [{"prompt_ids": [1, 5, 9][:length], "max_tokens": count} for length, count in ((3, 4), (1, 2), (2, 6))]
    done = subprocess.run(
        [sys.executable, str(driver), str(STORIES), "float32"],
        input=json.dumps({"concurrency": 2, "requests": requests}) + "\n",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    prepared, answer = map(json.loads, done.stdout.splitlines())
    assert prepared == {"prepared": True}
    assert [len(each["arrivals_s"]) for each in answer["requests"]] == [4, 2, 6]
    assert all(each["arrivals_s"] == sorted(each["arrivals_s"]) for each in answer["requests"])
    assert all(each["arrivals_s"][0] > each["sent_s"] for each in answer["requests"])
    assert answer["peak_memory_bytes"] > 100 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--models", "gpt5"], "--models: unknown gpt5; known: "), (["--peers", "nobody"], "--peers: unknown nobody")],
)
def test_unknown_names_are_refused(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_the_random_tokenizer_has_the_vocabulary_of_the_model() -> None:
    program = (
        "from random_checkpoint import build_tokenizer\n"
        "tokenizer = build_tokenizer(1000)\n"
        "assert len(tokenizer) == 1000 and tokenizer.eos_token_id == 999\n"
        "assert tokenizer.decode(tokenizer('Grüße')['input_ids']) == 'Grüße'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=BENCHMARKS)
