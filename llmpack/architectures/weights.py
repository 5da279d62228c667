"""How a decoder's parameters are made of a checkpoint's tensors.

Every decoder parameter is the concatenation, along its first axis, of one or more pieces; a piece is one tensor of the
checkpoint, perhaps rearranged. So a fused and a split checkpoint give the same parameter, and one piece is in memory at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llmpack.architectures.spec import AttentionSpec, DecoderSpec, LayerSpec, NormSpec

Array = npt.NDArray[Any]
Transform = Literal["none", "transpose", "deinterleave_heads", "add_one"]

EMBEDDING = "embedding.weight"
LM_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Piece:
    """One checkpoint tensor, by its name without the family's prefix; `{i}` is the layer."""

    name: str
    transform: Transform = "none"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One decoder parameter: its name, its float32 shape and the checkpoint tensors that make it up."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


# Decoder parameter (layer parameters without their `layers.N.` prefix) -> pieces.
WeightNames = Mapping[str, tuple[Piece, ...]]


def list_parameters(spec: DecoderSpec, names: WeightNames, *, tied: bool) -> list[Parameter]:
    """Returns every parameter of the decoder in the order in which it is stored."""
    shapes = dict(_outer_shapes(spec, tied=tied))
    parameters = [Parameter(name, shape, names[name]) for name, shape in shapes.items()]
    for index, layer in enumerate(spec.layers):
        for name, shape in _layer_shapes(spec.hidden_size, layer):
            pieces = tuple(Piece(p.name.format(i=index), p.transform) for p in names[f"layers.{name}"])
            parameters.append(Parameter(f"layers.{index}.{name}", shape, pieces))
    return parameters


def _outer_shapes(spec: DecoderSpec, *, tied: bool) -> list[tuple[str, tuple[int, ...]]]:
    shapes: list[tuple[str, tuple[int, ...]]] = [(EMBEDDING, (spec.vocab_size, spec.hidden_size))]
    if spec.learned_positions is not None:
        shapes.append(("positions.weight", (spec.learned_positions, spec.hidden_size)))
    shapes += _norm_shapes("final_norm", spec.final_norm, spec.hidden_size)
    if not tied:
        shapes.append((LM_HEAD, (spec.vocab_size, spec.hidden_size)))
    return shapes


def _layer_shapes(hidden: int, layer: LayerSpec) -> list[tuple[str, tuple[int, ...]]]:
    attention, mlp = layer.attention, layer.mlp
    shapes = _norm_shapes("attention_norm", layer.norm, hidden)
    shapes += _linear_shapes("attention.qkv", (attention.qkv_dim, hidden), bias=attention.qkv_bias)
    shapes += _qk_norm_shapes(attention)
    shapes += _linear_shapes(
        "attention.out", (hidden, attention.num_heads * attention.head_dim), bias=attention.out_bias
    )
    shapes += _norm_shapes("post_attention_norm", layer.norm, hidden) if layer.sandwich else []
    shapes += _norm_shapes("mlp_norm", layer.norm, hidden)
    up = ("mlp.gate_up", 2 * mlp.width) if mlp.gated else ("mlp.up", mlp.width)
    shapes += _linear_shapes(up[0], (up[1], hidden), bias=mlp.bias)
    shapes += _linear_shapes("mlp.down", (hidden, mlp.width), bias=mlp.bias)
    shapes += _norm_shapes("post_mlp_norm", layer.norm, hidden) if layer.sandwich else []
    return shapes


def _norm_shapes(name: str, norm: NormSpec, width: int) -> list[tuple[str, tuple[int, ...]]]:
    weight: list[tuple[str, tuple[int, ...]]] = [(f"{name}.weight", (width,))]
    return weight + ([(f"{name}.bias", (width,))] if norm.kind == "layer" else [])


def _qk_norm_shapes(attention: AttentionSpec) -> list[tuple[str, tuple[int, ...]]]:
    if attention.qk_norm is None:
        return []
    return [
        ("attention.query_norm.weight", (attention.head_dim,)),
        ("attention.key_norm.weight", (attention.head_dim,)),
    ]


def _linear_shapes(name: str, shape: tuple[int, int], *, bias: bool) -> list[tuple[str, tuple[int, ...]]]:
    weight: list[tuple[str, tuple[int, ...]]] = [(f"{name}.weight", shape)]
    return weight + ([(f"{name}.bias", shape[:1])] if bias else [])


def rearrange(piece: Piece, tensor: Array, num_heads: int) -> Array:
    """Returns the tensor as the decoder stores it; same dtype, a view where possible.

    Args:
        piece: Says how.
        tensor: As in the checkpoint.
        num_heads: H, for tensors whose rows are interleaved by head.
    """
    return _TRANSFORMS[piece.transform](tensor, num_heads)


def _deinterleave_heads(tensor: Array, num_heads: int) -> Array:
    """[H * 3 * E, ...] with q, k, v side by side in each head -> [3 * H * E, ...] with all of q first (GPT-NeoX)."""
    heads = tensor.reshape(num_heads, 3, -1, *tensor.shape[1:])
    return np.swapaxes(heads, 0, 1).reshape(tensor.shape)


_TRANSFORMS: Mapping[Transform, Callable[[Array, int], Array]] = {
    "none": lambda tensor, _: tensor,
    "transpose": lambda tensor, _: tensor.T,
    "deinterleave_heads": _deinterleave_heads,
    # Gemma stores the offset from one.
    "add_one": lambda tensor, _: tensor.astype(np.float32) + np.float32(1.0),
}
