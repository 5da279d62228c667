"""The operators of the cache-free program, as standard operators that any ONNX Runtime in use knows.

Rows of several prompts stand beside each other, padded on either side; `attention_mask` says which tokens are real.
There is no cache: `slot_attention` reads the keys and values of the same call. GroupQueryAttention is of no use here,
because it takes real tokens to be the first ones of a row; the standard Attention and RotaryEmbedding came with opset
23, which Triton's containers of 2024 do not run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.onnx import ops

from llmpack.architectures.spec import AttentionSpec
from llmpack.graph.operators.interface import SlotState, softcap

OPSET_VERSION = 18
"""ONNX Runtime has it since 1.14; Triton 24.01 carries 1.16."""

_FAR = -1e30  # Finite, so that a padding token that sees nothing gets numbers: its logits mean nothing.


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Returns rows [N, D] of a table [V, D] for ids [N]."""
    return nn.functional.embedding(ids, table)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x @ weight.T + bias for x [N, in] and weight [out, in], as one Gemm."""
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return ops.symbolic("Gemm", inputs, {"transB": 1}, dtype=x.dtype, shape=(x.shape[0], weight.shape[0]))


def rotate(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, num_heads: int) -> Tensor:
    """Returns x [B, T, heads * E] with the leading 2 * cos.shape[1] dimensions of each head rotated by position."""
    rows, tokens, width = x.shape
    half, head_dim = cos.shape[1], width // num_heads
    cosine, sine = (embed(position_ids, table).unsqueeze(2) for table in (cos, sin))  # [B, T, 1, half]
    heads = x.reshape(rows, tokens, num_heads, head_dim)
    first, second, rest = torch.split(heads, [half, half, head_dim - 2 * half], dim=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    parts = turned if head_dim == 2 * half else (*turned, rest)
    return torch.cat(parts, dim=-1).reshape(rows, tokens, width)


def slot_attention(
    qkv: tuple[Tensor, Tensor, Tensor], _cache: tuple[Tensor, ...], state: SlotState, spec: AttentionSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ([B, T, H * E] attention, the keys, the values).

    Args:
        qkv: [B, T, H * E], [B, T, K * E], [B, T, K * E].
        state: Its reach is (attention_mask,): [B, T] int64, 1 for real tokens.
        spec: Heads, scale, softcap and window.
    """
    rows, tokens = state.position_ids.shape
    kv_heads, head_dim, group = spec.num_key_value_heads, spec.head_dim, spec.num_heads // spec.num_key_value_heads
    # The query heads that share a key head lie one after the other, so keys are multiplied without being repeated.
    query = qkv[0].reshape(rows, tokens, kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
    query = query.reshape(rows, kv_heads, group * tokens, head_dim) * spec.scale
    keys, values = (part.reshape(rows, tokens, kv_heads, head_dim).transpose(1, 2) for part in qkv[1:])
    scores = query @ keys.transpose(2, 3)
    scores = softcap(scores, spec.softcap) if spec.softcap else scores
    scores = scores.reshape(rows, kv_heads, group, tokens, tokens) + _bias(state.reach[0], spec.window)
    weights = torch.softmax(scores, dim=-1).reshape(rows, kv_heads, group * tokens, tokens)
    mixed = (weights @ values).reshape(rows, kv_heads, group, tokens, head_dim).permute(0, 3, 1, 2, 4)
    return mixed.reshape(rows, tokens, spec.num_heads * head_dim), qkv[1], qkv[2]


def _bias(attention_mask: Tensor, window: int | None) -> Tensor:
    """[B, 1, 1, T, T]: 0 where the token of the second last axis sees that of the last, else far below any score."""
    places = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    distance = places.unsqueeze(1) - places.unsqueeze(0)
    near = distance >= 0
    if window is not None:
        near = near & (distance < window)
    seen = near & (attention_mask != 0).unsqueeze(1)
    return torch.where(seen, 0.0, _FAR).unsqueeze(1).unsqueeze(1)
