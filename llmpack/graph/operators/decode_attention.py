"""Attention of one token per slot, as an operator of its own.

Each slot is as long as it is: plain torch can only read all of them as far as the longest. So the operator is opaque
to torch.export, computed here in plain torch, and lowered to a C++ loop by `graph/inductor/decode_attention.py`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch._ops import OpOverload

from llmpack.architectures.spec import AttentionSpec
from llmpack.graph.operators.interface import softcap

OPERATOR = "llmpack::decode_attention"


def decode_attention(query: Tensor, cache: tuple[Tensor, ...], position_ids: Tensor, spec: AttentionSpec) -> Tensor:
    """Returns [B, H * E] attention in the cache's dtype, computed in float32.

    Args:
        query: [B, H * E] float32.
        cache: Keys and values, each [B, K, S, E], the tokens' own already in them.
        position_ids: [B, 1] int64; a token attends up to its own position.
        spec: Scale, softcap and window.
    """
    window = spec.window or cache[0].shape[2]
    settings = [spec.scale, spec.softcap, float(window)]
    return cast(Tensor, _operator(query, *cache, position_ids, settings))


def find_operator() -> OpOverload:
    """Returns the operator as it stands in an exported graph."""
    return torch.ops.llmpack.decode_attention.default


@torch.library.custom_op(OPERATOR, mutates_args=())
def _operator(query: Tensor, keys: Tensor, values: Tensor, position_ids: Tensor, settings: list[float]) -> Tensor:
    """The plain form. `settings` are scale, softcap (0.0 for none) and window."""
    scale, cap, window = settings
    rows, heads, _, width = keys.shape
    grouped = query.reshape(rows, heads, -1, 1, width)
    positions = torch.arange(keys.shape[2])
    own = position_ids[:, :, None, None]
    visible = (positions <= own) & (positions > own - int(window))
    scores = (grouped * keys[:, :, None].float()).sum(-1) * scale
    scores = softcap(scores, cap) if cap else scores
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1)
    return (weights[..., None] * values[:, :, None].float()).sum(-2).reshape(query.shape).to(keys.dtype)


@_operator.register_fake
def _(query: Tensor, keys: Tensor, values: Tensor, position_ids: Tensor, settings: list[float]) -> Tensor:
    return query.new_empty(query.shape, dtype=keys.dtype)
