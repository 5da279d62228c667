"""What a decoder is, in numbers: the resolved description from which graph, weights and cache are built.

Shape letters used everywhere: B slots, T tokens of a call, S cache length, D hidden, H query heads, K key-value heads,
E head dim, F mlp width, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NormKind = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A normalisation over the last axis. `layer` subtracts the mean and has a bias, `rms` does neither."""

    kind: NormKind
    eps: float


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One table of rotary positions.

    Attributes:
        rotary_dim: Leading dimensions of a head that are rotated; even, at most E.
        theta: Base of the frequencies.
        scaling: Hugging Face's rope_parameters without rope_theta; `rope_type` is always present.
        max_position_embeddings: Of the model; yarn and longrope derive their factor from it.
    """

    rotary_dim: int
    theta: float
    scaling: Mapping[str, object]
    max_position_embeddings: int

    @property
    def rope_type(self) -> str:
        """One of default, linear, llama3, yarn, longrope."""
        return str(self.scaling["rope_type"])


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Causal grouped-query attention of one layer.

    Attributes:
        scale: Multiplier of the scores before the softmax.
        softcap: cap * tanh(score / cap) on the scores; 0.0 for none.
        window: Number of last positions (the token's own included) attended to; None for all.
        rope: Name of the table in `DecoderSpec.ropes`, or None for a layer without rotation.
        qk_norm: RMS norm over each query and key head before rotation, or None.
        qkv_bias: The fused query-key-value projection has a bias.
        out_bias: The output projection has a bias.
    """

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    softcap: float = 0.0
    window: int | None = None
    rope: str | None = "default"
    qk_norm: NormSpec | None = None
    qkv_bias: bool = False
    out_bias: bool = False

    @property
    def qkv_dim(self) -> int:
        """Rows of the fused projection: (H + 2K) * E."""
        return (self.num_heads + 2 * self.num_key_value_heads) * self.head_dim


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """down(act(up(x))), or down(act(gate(x)) * up(x)) when gated. `width` is F."""

    width: int
    activation: Activation
    gated: bool
    bias: bool


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One block.

    Attributes:
        sandwich: Also normalise what attention and mlp add (Gemma 2 and 3).
        parallel: Attention and mlp both read the block's input and are added together (GPT-NeoX).
    """

    attention: AttentionSpec
    mlp: MlpSpec
    norm: NormSpec
    sandwich: bool = False
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A whole decoder.

    Attributes:
        architecture: Row name, Hugging Face's model_type.
        ropes: Rotary tables by name; empty for learned positions.
        embedding_scale: Multiplier of the embeddings.
        learned_positions: Rows of the position embedding, or None.
        final_softcap: cap * tanh(logit / cap) on the logits; 0.0 for none.
        max_position_embeddings: Longest sequence the model was made for.
        ignored_config_keys: Keys of config.json that no one read, for the record.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: tuple[LayerSpec, ...]
    final_norm: NormSpec
    ropes: Mapping[str, RopeSpec]
    max_position_embeddings: int
    embedding_scale: float = 1.0
    learned_positions: int | None = None
    final_softcap: float = 0.0
    ignored_config_keys: tuple[str, ...] = ()

    @property
    def layer_kinds(self) -> tuple[LayerSpec, ...]:
        """The different layers, each once, in order of first use."""
        return tuple(dict.fromkeys(self.layers))
