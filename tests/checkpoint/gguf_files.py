"""Writes .gguf files with the published writer, from a Hugging Face checkpoint or a few tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

STORIES = Path(__file__).parents[1] / "data" / "stories260K"
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def write_stories(path: Path, change: Change | None = None, kind: str = "F32") -> Path:
    """stories260K as llama.cpp stores it.

    Args:
        path: The new file.
        change: May alter the metadata and the tensors (ggml's names) before they are written.
        kind: Storage format of the matrices.
    """
    metadata, tensors = stories_metadata(), stories_tensors()
    if change:
        change(metadata, tensors)
    return write_gguf(path, metadata, tensors, kind)


def write_gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray], kind: str = "F32") -> Path:
    writer = gguf.GGUFWriter(path, metadata.get("general.architecture", "llama"))
    for key, value in metadata.items():
        if key != "general.architecture":
            _add(writer, key, value)
    quantised = gguf.GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        keep = tensor.ndim == 1 or kind == "F32" or tensor.shape[-1] % gguf.GGML_QUANT_SIZES[quantised][0]
        data = tensor if keep else gguf.quantize(tensor, quantised)
        writer.add_tensor(name, data, raw_dtype=None if keep or kind == "F16" else quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
        return
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds[type(value)](key, value)


def stories_metadata() -> dict[str, Any]:
    tokenizer = json.loads((STORIES / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    return {
        "llama.context_length": 512,
        "llama.embedding_length": 64,
        "llama.block_count": 5,
        "llama.feed_forward_length": 172,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": 8,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259),
    }


def stories_tensors() -> dict[str, np.ndarray]:
    return {_ggml_name(name): _ggml_rows(name, t) for name, t in load_file(STORIES / "model.safetensors").items()}


def _ggml_name(name: str) -> str:
    base, kind = name.rsplit(".", 1)
    if base in NAMES:
        return f"{NAMES[base]}.{kind}"
    _, _, layer, rest = base.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{kind}"


def _ggml_rows(name: str, tensor: np.ndarray) -> np.ndarray:
    """Rows of q and k in ggml's order: row i of the first half of a head stands before row i of the second."""
    heads = 8 if "q_proj" in name else 4 if "k_proj" in name else 0
    if not heads:
        return tensor
    per_head = tensor.reshape(heads, -1, tensor.shape[1])  # [heads, E, D]
    half = per_head.shape[1] // 2
    order = [row + part * half for row in range(half) for part in range(2)]
    return np.ascontiguousarray(per_head[:, order].reshape(tensor.shape))
