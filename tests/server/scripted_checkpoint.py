"""An ordinary Llama checkpoint whose greedy continuation of any prompt that ends in " go" is the script, then EOS.

One layer whose attention and mlp add nothing (o_proj and down_proj are zero), so the final hidden state is the last
token's embedding; the head's row of each token in the script points along the embedding of the token before it. The
script's tokens have orthogonal embeddings, so the right logit is about 28 and the others are within 3: exact under any
batch, quantisation or temperature up to 1.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from llmpack.runtime.tokenizer import Tokenizer
from tests.server.scripted import script_of, write_tokenizer

HIDDEN, MLP, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 128, 64, 4, 2, 32
HEAD_GAIN = 2.5


def write_checkpoint(directory: Path, max_seq_len: int = 512) -> None:
    """Writes config.json, the tokenizer's files, generation_config.json and model.safetensors."""
    write_tokenizer(directory)
    tokenizer = Tokenizer.from_directory(directory)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": 1,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": max_seq_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": tokenizer.eos_token_id,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(_weights(tokenizer), directory / "model.safetensors", metadata={"format": "pt"})


def _weights(tokenizer: Tokenizer) -> dict[str, npt.NDArray[np.float32]]:
    layer = "model.layers.0."
    generator = np.random.default_rng(0)
    embedding, head = _script_weights(tokenizer, generator)
    shapes = {
        "self_attn.q_proj": (NUM_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
    }
    weights = {f"{layer}{name}.weight": generator.normal(0, 0.02, shape) for name, shape in shapes.items()}
    weights |= {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(HIDDEN),
        f"{layer}input_layernorm.weight": np.ones(HIDDEN),
        f"{layer}post_attention_layernorm.weight": np.ones(HIDDEN),
        f"{layer}self_attn.o_proj.weight": np.zeros((HIDDEN, NUM_HEADS * HEAD_DIM)),
        f"{layer}mlp.down_proj.weight": np.zeros((HIDDEN, MLP)),
    }
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}


def _script_weights(
    tokenizer: Tokenizer, generator: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Embedding and head, [V, D] each."""
    script = script_of(tokenizer)
    axes = np.linalg.qr(generator.normal(size=(HIDDEN, HIDDEN)))[0]
    spare = axes[len(script) :]  # what the script's tokens do not use
    embedding = generator.normal(size=(tokenizer.vocab_size, len(spare))) @ spare
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    head = generator.normal(0, 0.05, size=(tokenizer.vocab_size, HIDDEN))
    for axis, (token_id, next_id) in zip(axes, script.items(), strict=False):
        embedding[token_id] = axis
        head[next_id] += HEAD_GAIN * axis
    return embedding, head
