"""What distinguishes one model family from another, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmpack.architectures.spec import NormKind
from llmpack.architectures.weights import WeightNames

Flag = bool | str
"""A constant, or the config.json key whose boolean decides."""

WindowRule = Literal["none", "every_layer", "layer_types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchSpec:
    """One row of the architecture table.

    Attributes:
        model_type: Hugging Face's model_type, the row's key.
        transformers_class: The class that the row is proved against.
        defaults: What the transformers config class gives to keys that config.json may leave out.
        weights: Which checkpoint tensors make up each decoder parameter, without `prefix`.
        prefix: What the checkpoint's names begin with when it was saved with its head; base-model checkpoints
            lack it, and both are read.
        leftovers: Regular expressions of tensors that some savers write and nobody needs (masks, frequencies).
        norm: Kind of every norm.
        sandwich: Norms after attention and mlp too.
        parallel: Attention and mlp side by side.
        qk_norm: RMS norm on query and key heads.
        qkv_bias, out_bias, mlp_bias: Which projections have biases.
        gated_mlp: Gate and up projections.
        scale_embedding: Multiply embeddings by sqrt(hidden_size).
        attention_scalar: Config key whose value ** -0.5 scales the scores, instead of head_dim's.
        softcaps: The family reads attn_logit_softcapping and final_logit_softcapping.
        positions: Rotary tables or learned embeddings.
        rope_types: Scalings the family may be saved with.
        rotary_fraction: Config key of the rotated share of each head, or None for all of it.
        window: Which layers slide.
        local_rope: Sliding layers have their own, unscaled rotary table.
        skips_rope: The family reads no_rope_layers.
    """

    model_type: str
    transformers_class: str
    weights: WeightNames
    prefix: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    leftovers: tuple[str, ...] = (r"\.rotary_emb\.inv_freq$",)
    norm: NormKind = "rms"
    sandwich: bool = False
    parallel: Flag = False
    qk_norm: bool = False
    qkv_bias: Flag = False
    out_bias: Flag = False
    mlp_bias: Flag = False
    gated_mlp: bool = True
    scale_embedding: bool = False
    attention_scalar: str | None = None
    softcaps: bool = False
    positions: Literal["rope", "learned"] = "rope"
    rope_types: frozenset[str] = frozenset({"default", "linear", "llama3", "yarn"})
    rotary_fraction: str | None = None
    window: WindowRule = "none"
    local_rope: bool = False
    skips_rope: bool = False
