"""Weights of a llama-family .gguf under Hugging Face's names, dequantised one tensor at a time.

Source: llama.cpp's gguf-py/gguf/tensor_mapping.py (names) and convert_hf_to_gguf.py `LlamaModel.permute` (rotary
layout): ggml rotates neighbouring pairs of a head, Hugging Face the two halves, so the rows of q and k are permuted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import gguf
import numpy as np

from llmpack.checkpoint.defects import tensor_missing
from llmpack.checkpoint.gguf_file import GgufFile, GgufTensor
from llmpack.checkpoint.weights import Tensor, TensorInfo
from llmpack.errors import CorruptCheckpoint, UnsupportedArchitecture

ROPE_FACTORS = "rope_freqs.weight"
_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


@dataclass(frozen=True)
class HeadCounts:
    """Heads whose rows are permuted: query heads and key-value heads."""

    num_attention_heads: int
    num_key_value_heads: int


class GgufWeights:
    """Tensors of a .gguf file as float32."""

    def __init__(self, file: GgufFile, heads: HeadCounts) -> None:
        """Give the tensors Hugging Face's names.

        Raises:
            CorruptCheckpoint: Tensors that no llama has; all are named.
            UnsupportedArchitecture: A storage format that cannot be dequantised.
        """
        self._file = file
        self._heads = heads
        self._stored = _rename(file)
        _check_formats(file)

    @property
    def total_bytes(self) -> int:
        """Size of all tensors as float32."""
        return sum(self.info(name).num_bytes for name in self._stored)

    def names(self) -> list[str]:
        """All tensor names, sorted."""
        return sorted(self._stored)

    def info(self, name: str) -> TensorInfo:
        """Dtype (always float32) and shape of one tensor.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        return TensorInfo("float32", self._find(name).shape)

    def read(self, name: str) -> Tensor:
        """One tensor, dequantised, in Hugging Face's layout; float32.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        values = _dequantize(self._file, self._find(name))
        if ".q_proj." in name:
            return _undo_rotary_permutation(values, self._heads.num_attention_heads)
        if ".k_proj." in name:
            return _undo_rotary_permutation(values, self._heads.num_key_value_heads)
        return values

    def _find(self, name: str) -> GgufTensor:
        if name not in self._stored:
            raise tensor_missing(name, self.names())
        return self._stored[name]


def block_sizes() -> dict[int, tuple[int, int]]:
    """Elements and bytes per block of each ggml storage format that the gguf package knows."""
    return {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}


def read_rope_factors(file: GgufFile) -> Tensor | None:
    """The divisors of the rotary frequencies, shape [E/2], or None when the file has none."""
    tensor = file.tensors.get(ROPE_FACTORS)
    return None if tensor is None else _dequantize(file, tensor)


def _rename(file: GgufFile) -> dict[str, GgufTensor]:
    named: dict[str, GgufTensor] = {}
    left_over = []
    for name, tensor in file.tensors.items():
        match = _BLOCK_TENSOR.fullmatch(name)
        if name in _OUTER_NAMES:
            named[_OUTER_NAMES[name]] = tensor
        elif match and match[2] in _BLOCK_NAMES:
            named[f"model.layers.{match[1]}.{_BLOCK_NAMES[match[2]]}.{match[3]}"] = tensor
        elif name != ROPE_FACTORS:
            left_over.append(name)
    if left_over:
        raise CorruptCheckpoint(
            f"{len(left_over)} tensors have no place in a llama: {', '.join(sorted(left_over)[:20])}",
            where=str(file.path),
            next_step="The file may hold a mixture of experts or another family under the name llama.",
        )
    return named


def _check_formats(file: GgufFile) -> None:
    """Dequantise one block of each storage format, so that an unknown one is refused before the compile starts."""
    by_format = {tensor.type_id: tensor for tensor in file.tensors.values()}
    for type_id, tensor in by_format.items():
        elements, num_bytes = block_sizes()[type_id]
        block = np.zeros((1, num_bytes), np.uint8)
        try:
            gguf.dequantize(block, gguf.GGMLQuantizationType(type_id))
        except NotImplementedError:
            raise UnsupportedArchitecture(
                f"tensors of {list(tensor.shape)} are stored in a format that cannot be dequantised",
                where=str(file.path),
                given=f"{gguf.GGMLQuantizationType(type_id).name} ({elements} elements a block)",
                next_step="Use another quantisation of the model, such as Q8_0 or F16.",
            ) from None


def _dequantize(file: GgufFile, tensor: GgufTensor) -> Tensor:
    kind = gguf.GGMLQuantizationType(tensor.type_id)
    mapped = np.memmap(file.path, np.uint8, "r", offset=tensor.start, shape=(tensor.num_bytes,))
    rows = np.asarray(mapped).reshape(*tensor.shape[:-1], -1)
    return np.asarray(gguf.dequantize(rows, kind), np.float32).reshape(tensor.shape)


def _undo_rotary_permutation(values: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from ggml's order (pairs side by side) to Hugging Face's (first halves, second halves)."""
    pairs = values.reshape(num_heads, values.shape[0] // num_heads // 2, 2, -1)  # [heads, E/2, 2, D]
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))
