"""The decoder: one torch module for every family, built from a DecoderSpec.

All activations between attention calls are [N, D] with N = B * T, so that every projection is one Gemm.

        tokens --> embedding --> block x L --> final norm --> head --> logits
                                   |
                     norm -> qkv -> (qk norm) -> rope -> slot attention -> out -> (+)
                     norm -> gate, up -> act -> down -> (+)
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from llmpack.architectures.spec import Activation, DecoderSpec, LayerSpec, NormSpec
from llmpack.graph.operators.interface import Operators, SlotState, softcap

Cache = tuple[Tensor, ...]
"""Keys and values of a layer; () where no slots are kept."""


class Norm(nn.Module):
    """RMS or layer normalisation over the last axis."""

    def __init__(self, spec: NormSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.weight = _parameter(width)
        self.bias = _parameter(width) if spec.kind == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., width] normalised."""
        width = x.shape[-1:]
        if self.spec.kind == "rms":
            return nn.functional.rms_norm(x, width, self.weight, self.spec.eps)
        return nn.functional.layer_norm(x, width, self.weight, self.bias, self.spec.eps)


class Linear(nn.Module):
    """A projection with the weight stored [out, in]."""

    def __init__(self, in_features: int, out_features: int, operators: Operators, *, bias: bool = False) -> None:
        super().__init__()
        self.operators = operators
        self.weight = _parameter(out_features, in_features)
        self.bias = _parameter(out_features) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] -> [N, out]."""
        return self.operators.linear(x, self.weight, self.bias)


class RopeTable(nn.Module):
    """cos and sin, each [S, rotary_dim / 2]."""

    def __init__(self, max_seq_len: int, rotary_dim: int) -> None:
        super().__init__()
        self.cos = _parameter(max_seq_len, rotary_dim // 2)
        self.sin = _parameter(max_seq_len, rotary_dim // 2)


class Attention(nn.Module):
    """Fused projections, optional qk norm and rope, slot attention, output projection."""

    def __init__(self, layer: LayerSpec, hidden_size: int, operators: Operators) -> None:
        super().__init__()
        self.operators = operators
        self.spec = spec = layer.attention
        self.qkv = Linear(hidden_size, spec.qkv_dim, operators, bias=spec.qkv_bias)
        self.out = Linear(spec.num_heads * spec.head_dim, hidden_size, operators, bias=spec.out_bias)
        self.query_norm = Norm(spec.qk_norm, spec.head_dim) if spec.qk_norm else None
        self.key_norm = Norm(spec.qk_norm, spec.head_dim) if spec.qk_norm else None

    def forward(self, x: Tensor, cache: Cache, state: SlotState, rope: RopeTable | None) -> tuple[Tensor, Cache]:
        """[N, D] -> ([N, D], the new cache)."""
        query, key, value = self._project(x, state)
        query, key = self._normalise(query, self.query_norm), self._normalise(key, self.key_norm)
        if rope is not None:
            rotate, tables = self.operators.rotate, (rope.cos, rope.sin)
            query = rotate(query, *tables, state.position_ids, self.spec.num_heads)
            key = rotate(key, *tables, state.position_ids, self.spec.num_key_value_heads)
        mixed, keys, values = self.operators.slot_attention((query, key, value), cache, state, self.spec)
        return self.out(mixed.reshape(x.shape[0], self.spec.num_heads * self.spec.head_dim)), (keys, values)

    def _project(self, x: Tensor, state: SlotState) -> tuple[Tensor, Tensor, Tensor]:
        """[N, D] -> [B, T, H * E], [B, T, K * E], [B, T, K * E]."""
        rows, tokens = state.position_ids.shape
        queries, keys = (n * self.spec.head_dim for n in (self.spec.num_heads, self.spec.num_key_value_heads))
        fused = self.qkv(x).reshape(rows, tokens, queries + 2 * keys)
        query, key, value = fused.split([queries, keys, keys], dim=-1)
        return query, key, value

    def _normalise(self, x: Tensor, norm: Norm | None) -> Tensor:
        """[B, T, heads * E] -> the same, each head normalised."""
        if norm is None:
            return x
        rows, tokens, width = x.shape
        heads = x.reshape(rows, tokens, width // self.spec.head_dim, self.spec.head_dim)
        return cast(Tensor, norm(heads)).reshape(rows, tokens, width)


class Mlp(nn.Module):
    """down(act(up)), or down(act(gate) * up) with gate and up fused in one projection."""

    def __init__(self, layer: LayerSpec, hidden_size: int, operators: Operators) -> None:
        super().__init__()
        self.spec = spec = layer.mlp
        if spec.gated:
            self.gate_up = Linear(hidden_size, 2 * spec.width, operators, bias=spec.bias)
        else:
            self.up = Linear(hidden_size, spec.width, operators, bias=spec.bias)
        self.down = Linear(spec.width, hidden_size, operators, bias=spec.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] -> [N, D]."""
        if not self.spec.gated:
            return cast(Tensor, self.down(activate(self.up(x), self.spec.activation)))
        gate, up = self.gate_up(x).split(self.spec.width, dim=-1)
        return cast(Tensor, self.down(activate(gate, self.spec.activation) * up))


class Block(nn.Module):
    """One layer: attention and mlp, each behind its norm."""

    def __init__(self, layer: LayerSpec, hidden_size: int, operators: Operators) -> None:
        super().__init__()
        self.spec = layer
        self.attention_norm = Norm(layer.norm, hidden_size)
        self.attention = Attention(layer, hidden_size, operators)
        self.post_attention_norm = Norm(layer.norm, hidden_size) if layer.sandwich else None
        self.mlp_norm = Norm(layer.norm, hidden_size)
        self.mlp = Mlp(layer, hidden_size, operators)
        self.post_mlp_norm = Norm(layer.norm, hidden_size) if layer.sandwich else None

    def forward(self, x: Tensor, cache: Cache, state: SlotState, rope: RopeTable | None) -> tuple[Tensor, Cache]:
        """[N, D] -> ([N, D], the new cache)."""
        attended, new_cache = self.attention(self.attention_norm(x), cache, state, rope)
        if self.post_attention_norm is not None:
            attended = self.post_attention_norm(attended)
        if self.spec.parallel:
            return x + attended + self.mlp(self.mlp_norm(x)), new_cache
        x = x + attended
        added = self.mlp(self.mlp_norm(x))
        if self.post_mlp_norm is not None:
            added = self.post_mlp_norm(added)
        return x + added, new_cache


class Decoder(nn.Module):
    """The parts of a decoder: embedding, one block of each kind, final norm and head, with unset parameters.

    Layers of equal LayerSpec differ in their weights alone, so one block stands for all of them: it is exported once
    and repeated in the graph under each layer's parameter names.

    Args:
        spec: What to build.
        max_seq_len: S, rows of the rope tables.
        operators: The lowering.
        tied: The head reads the embedding.
    """

    def __init__(self, spec: DecoderSpec, max_seq_len: int, operators: Operators, *, tied: bool) -> None:
        super().__init__()
        self.spec = spec
        self.operators = operators
        self.embedding = Linear(spec.hidden_size, spec.vocab_size, operators)
        self.positions = Linear(spec.hidden_size, spec.learned_positions, operators) if spec.learned_positions else None
        self.ropes = nn.ModuleDict({name: RopeTable(max_seq_len, rope.rotary_dim) for name, rope in spec.ropes.items()})
        self.blocks = nn.ModuleList(Block(kind, spec.hidden_size, operators) for kind in spec.layer_kinds)
        self.final_norm = Norm(spec.final_norm, spec.hidden_size)
        self.lm_head = None if tied else Linear(spec.hidden_size, spec.vocab_size, operators)

    def embed(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """[B, T] tokens and positions -> [N, D]."""
        x = self.operators.embed(input_ids.reshape(math.prod(input_ids.shape)), self.embedding.weight)
        if self.spec.embedding_scale != 1.0:
            x = x * self.spec.embedding_scale
        if self.positions is not None:
            positions = position_ids.reshape(math.prod(position_ids.shape))
            x = x + self.operators.embed(positions, self.positions.weight)
        return x

    def block(self, kind: int, x: Tensor, cache: Cache, state: SlotState) -> tuple[Tensor, Cache]:
        """[N, D] -> ([N, D], the new cache) through a layer of `spec.layer_kinds[kind]`."""
        name = self.spec.layer_kinds[kind].attention.rope
        rope = None if name is None else cast(RopeTable, self.ropes[name])
        return cast(tuple[Tensor, Cache], self.blocks[kind](x, cache, state, rope))

    def normalise(self, x: Tensor) -> Tensor:
        """[N, D] -> [N, D] hidden states, as the head reads them."""
        return cast(Tensor, self.final_norm(x))

    def head(self, hidden_states: Tensor) -> Tensor:
        """[N, D] -> [N, V] logits."""
        logits = cast(Tensor, (self.lm_head or self.embedding)(hidden_states))
        return softcap(logits, self.spec.final_softcap) if self.spec.final_softcap else logits


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Returns the activation of x, elementwise."""
    if activation == "silu":
        return nn.functional.silu(x)
    if activation == "relu":
        return nn.functional.relu(x)
    return nn.functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=torch.float32), requires_grad=False)
