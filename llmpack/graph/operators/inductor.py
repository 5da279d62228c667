"""The operators in plain torch, in the form that inductor turns into good CPU code.

Matrix products run in the dtype of their weights and accumulate in float32; all else is float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from llmpack.architectures.spec import AttentionSpec
from llmpack.graph.operators.decode_attention import decode_attention
from llmpack.graph.operators.interface import SlotState, softcap


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Returns rows [N, D] of a table [V, D] for ids [N]."""
    return nn.functional.embedding(ids, table).float()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x @ weight.T + bias for x [N, in] and weight [out, in].

    The bias is added outside of the product, where inductor fuses it into the store like any other epilogue.
    """
    product = nn.functional.linear(x.to(weight.dtype), weight).float()
    return product if bias is None else product + bias


def rotate(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, num_heads: int) -> Tensor:
    """Returns x [B, T, heads * E] with the leading 2 * cos.shape[1] dimensions of each head rotated by position."""
    rows, tokens, width = x.shape
    half = cos.shape[1]
    heads = x.reshape(rows, tokens, num_heads, width // num_heads)
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    cosine, sine = cos[position_ids][:, :, None], sin[position_ids][:, :, None]
    rotated = (first * cosine - second * sine, second * cosine + first * sine, rest)
    return torch.cat(rotated, dim=-1).reshape(rows, tokens, width)


def slot_attention(
    qkv: tuple[Tensor, Tensor, Tensor], cache: tuple[Tensor, ...], state: SlotState, spec: AttentionSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ([B, T, H * E] attention, keys, values) after writing the call's keys and values into the cache.

    Args:
        qkv: [B, T, H * E], [B, T, K * E], [B, T, K * E].
        cache: Keys and values, each [B, K, S, E], changed in place.
        state: For many tokens its reach is (live_positions,): int64 0, 1, 2, ... as far as the slot is read. A single
            token needs none.
        spec: Heads, scale, softcap and window.
    """
    query, key, value = qkv
    keys, values = cache
    _write(keys, key, state.position_ids)
    _write(values, value, state.position_ids)
    if query.shape[1] == 1:
        mixed = decode_attention(query[:, 0], cache, state.position_ids, spec)[:, None]
    else:
        mixed = _attend_many(query, cache, state, spec)
    return mixed, keys, values


def _write(cache: Tensor, new: Tensor, position_ids: Tensor) -> None:
    """Writes [B, T, K * E] to the given positions of [B, K, S, E]."""
    rows, tokens = position_ids.shape
    slots = torch.arange(rows)[:, None]
    cache[slots, :, position_ids] = new.reshape(rows, tokens, cache.shape[1], cache.shape[3]).to(cache.dtype)


def _attend_many(query: Tensor, cache: tuple[Tensor, ...], state: SlotState, spec: AttentionSpec) -> Tensor:
    """Returns [B, T, H * E] attention, by matrix products over G * T rows for each key-value head."""
    (live_positions,) = state.reach
    rows, tokens, width = query.shape
    heads, live = spec.num_key_value_heads, live_positions.shape[0]
    keys, values = (part[:, :, :live] for part in cache)
    grouped = query.reshape(rows, tokens, heads, -1, spec.head_dim).permute(0, 2, 3, 1, 4)  # [B, K, G, T, E]
    stacked = grouped.to(keys.dtype).reshape(rows, heads, -1, spec.head_dim)
    scores = (stacked @ keys.transpose(-1, -2)).float().reshape(rows, heads, -1, tokens, live) * spec.scale
    if spec.softcap:
        scores = softcap(scores, spec.softcap)
    visible = _visible(state.position_ids, live_positions, spec.window)
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1).to(values.dtype)
    mixed = (weights.reshape(rows, heads, -1, live) @ values).reshape(grouped.shape)
    return mixed.permute(0, 3, 1, 2, 4).reshape(rows, tokens, width)


def _visible(position_ids: Tensor, live_positions: Tensor, window: int | None) -> Tensor:
    """Returns [B, 1, 1, T, live] truth of: this token attends to that position."""
    own = position_ids[:, None, None, :, None]
    visible = live_positions <= own
    return visible if window is None else visible & (live_positions > own - window)
