"""What the decoder asks of a lowering.

decoder --> Operators --+-- operators/onnx.py         over slots: one ONNX node each
                        |-- operators/whole_rows.py   without a cache: old standard operators
                        `-- operators/inductor.py     over slots: plain torch that inductor fuses
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from llmpack.architectures.spec import AttentionSpec


@dataclass(frozen=True, slots=True)
class SlotState:
    """Where each row of a call stands.

    Attributes:
        position_ids: [B, T] int64 positions of the tokens.
        reach: How far the slots are read, in the form that the lowering's `slot_attention` documents.
    """

    position_ids: Tensor
    reach: tuple[Tensor, ...]


class Operators(Protocol):
    """A lowering. Activations between operators are float32, whatever the weights are."""

    def embed(self, ids: Tensor, table: Tensor) -> Tensor:
        """Returns rows [N, D] of a table [V, D] for ids [N]."""
        ...

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x @ weight.T + bias for x [N, in] and weight [out, in]."""
        ...

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, num_heads: int) -> Tensor:
        """Returns x [B, T, heads * E] with the leading 2 * cos.shape[1] dimensions of each head rotated by position.

        Half-split layout, as in transformers' `rotate_half`.
        """
        ...

    def slot_attention(
        self,
        qkv: tuple[Tensor, Tensor, Tensor],
        cache: tuple[Tensor, ...],
        state: SlotState,
        spec: AttentionSpec,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns ([B, T, H * E] attention, in float32 or the cache's dtype, new keys, new values).

        The call's keys and values are written to the slots first; a token attends to what its slot holds up to and
        including its own position, within the window.

        Args:
            qkv: [B, T, H * E], [B, T, K * E], [B, T, K * E].
            cache: Keys and values, each [B, K, S, E]; () where no slots are kept.
            state: Where the rows stand.
            spec: Heads, scale, softcap and window.
        """
        ...


def softcap(x: Tensor, cap: float) -> Tensor:
    """Returns cap * tanh(x / cap)."""
    return torch.tanh(x / cap) * cap
