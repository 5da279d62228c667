"""Writes a checkpoint of the llama family as a .gguf file without a tokenizer, which a driver with token ids needs not.

    python write_gguf.py CHECKPOINT FILE.gguf {F32,BF16,Q8_0,Q4_0}

A scaled rope is written unscaled: it costs the same.
Source: the names and the order of rotated pairs that llama.cpp's converter gives LlamaForCausalLM.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

_NAMES = {
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


def read_tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and float32 values of a safetensors file of bfloat16, one at a time."""
    data = np.memmap(path, np.uint8, mode="r")
    header_len = int(data[:8].view(np.uint64)[0])
    for name, entry in json.loads(data[8 : 8 + header_len].tobytes()).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise SystemExit(f"error: {path}: {name} is {entry['dtype']}, not BF16")
        start, end = (8 + header_len + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[start:end].tobytes(), np.uint16).astype(np.uint32) << 16
        yield name, bits.view(np.float32).reshape(entry["shape"])


def rename(name: str) -> str:
    """The name that llama.cpp has for a tensor."""
    layer, key = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.weight", name).groups()
    return f"{_NAMES[key]}.weight" if layer is None else f"blk.{layer}.{_NAMES[key]}.weight"


def pair_rotated(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows from halves to neighbours: llama.cpp rotates rows 2i and 2i+1 of a head together."""
    heads = weight.reshape(num_heads, 2, weight.shape[0] // num_heads // 2, weight.shape[1])
    return heads.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(checkpoint: Path, target: Path, kind: str) -> None:
    """Writes the file; matrices are of `kind`, norms float32."""
    config = json.loads((checkpoint / "config.json").read_bytes())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rope = config.get("rope_parameters") or config
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    for name, weight in read_tensors(checkpoint / "model.safetensors"):
        rotated = next((count for key, count in heads.items() if f".{key}." in name), None)
        values = pair_rotated(weight, rotated) if rotated else weight
        chosen = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(rename(name), gguf.quants.quantize(values, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
