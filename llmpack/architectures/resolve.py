"""Turns a config.json into a DecoderSpec with the help of its family's row."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmpack.architectures.arch_spec import ArchSpec
from llmpack.architectures.config_reader import ConfigReader
from llmpack.architectures.rope import check_scaling
from llmpack.architectures.rows import ROWS
from llmpack.architectures.spec import (
    Activation,
    AttentionSpec,
    DecoderSpec,
    LayerSpec,
    MlpSpec,
    NormSpec,
    RopeSpec,
)
from llmpack.errors import CheckpointError, UnsupportedArchitecture

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
"""Hugging Face's hidden_act names (transformers `ACT2FN`) -> ours."""


def find_row(config: Mapping[str, Any]) -> ArchSpec:
    """Returns the row of the checkpoint's model_type.

    Raises:
        UnsupportedArchitecture: No such row; the nearest and all supported ones are named.
    """
    model_type = str(config.get("model_type"))
    if model_type in ROWS:
        return ROWS[model_type]
    near = difflib.get_close_matches(model_type, ROWS, n=1, cutoff=0.5)
    hint = f"The nearest supported architecture is `{near[0]}`." if near else "See the table in the README."
    raise UnsupportedArchitecture(
        "the architecture is not supported",
        where="config.json model_type",
        given=model_type,
        allowed=", ".join(ROWS),
        next_step=hint,
    )


def build_decoder_spec(row: ArchSpec, config: Mapping[str, Any]) -> DecoderSpec:
    """Returns the decoder that config.json describes.

    Raises:
        CheckpointError: A needed key is absent or of the wrong type.
        UnsupportedArchitecture: A rope type, an activation or another setting that changes the maths has no row.
    """
    reader = ConfigReader(config, row.defaults)
    norm = NormSpec(row.norm, reader.number("rms_norm_eps"))
    ropes = _build_ropes(row, reader)
    kinds = _layer_windows(row, reader)
    spec = DecoderSpec(
        architecture=row.model_type,
        vocab_size=reader.integer("vocab_size"),
        hidden_size=reader.integer("hidden_size"),
        layers=tuple(_build_layer(row, reader, norm, window, rope) for window, rope in kinds),
        final_norm=norm,
        ropes=ropes,
        max_position_embeddings=reader.integer("max_position_embeddings"),
        embedding_scale=math.sqrt(reader.integer("hidden_size")) if row.scale_embedding else 1.0,
        learned_positions=reader.integer("max_position_embeddings") if row.positions == "learned" else None,
        final_softcap=_softcap(row, reader, "final_logit_softcapping"),
    )
    return replace(spec, ignored_config_keys=reader.unread_keys(row.model_type))


def _build_layer(
    row: ArchSpec, reader: ConfigReader, norm: NormSpec, window: int | None, rope: str | None
) -> LayerSpec:
    heads = reader.integer("num_attention_heads")
    head_dim = _head_dim(reader)
    scalar = reader.number(row.attention_scalar) if row.attention_scalar else float(head_dim)
    attention = AttentionSpec(
        num_heads=heads,
        num_key_value_heads=reader.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        scale=scalar**-0.5,
        softcap=_softcap(row, reader, "attn_logit_softcapping"),
        window=window,
        rope=rope,
        qk_norm=NormSpec("rms", norm.eps) if row.qk_norm else None,
        qkv_bias=reader.flag(row.qkv_bias),
        out_bias=reader.flag(row.out_bias),
    )
    return LayerSpec(attention, _build_mlp(row, reader), norm, row.sandwich, reader.flag(row.parallel))


def _build_mlp(row: ArchSpec, reader: ConfigReader) -> MlpSpec:
    name = reader.get("hidden_act")
    if name not in ACTIVATIONS:
        raise UnsupportedArchitecture(
            "the activation is not supported",
            where="config.json hidden_act",
            given=name,
            allowed=", ".join(sorted(ACTIVATIONS)),
        )
    width = reader.integer("intermediate_size", 4 * reader.integer("hidden_size"))
    return MlpSpec(width, ACTIVATIONS[name], row.gated_mlp, reader.flag(row.mlp_bias))


def _head_dim(reader: ConfigReader) -> int:
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    if reader.get("head_dim") is None and hidden % heads:
        raise CheckpointError(
            "hidden_size is not a multiple of num_attention_heads", where="config.json", given=f"{hidden} and {heads}"
        )
    return reader.integer("head_dim", hidden // heads)


def _softcap(row: ArchSpec, reader: ConfigReader, name: str) -> float:
    return float(reader.get(name) or 0.0) if row.softcaps else 0.0


def _build_ropes(row: ArchSpec, reader: ConfigReader) -> dict[str, RopeSpec]:
    if row.positions == "learned":
        return {}
    parameters = _rope_parameters(row, reader)
    ropes = {name: _build_rope(row, reader, values) for name, values in parameters.items()}
    for rope in ropes.values():
        check_scaling(rope, row.rope_types)
    return ropes


def _rope_parameters(row: ArchSpec, reader: ConfigReader) -> dict[str, dict[str, Any]]:
    """Returns Hugging Face's rope parameters per table, from the version 5 spelling or from the older ones.

    Version 5 writes `rope_parameters` (nested by layer type where layers differ); before it there were `rope_theta`,
    `rope_scaling` (with `type` or `rope_type`), and per-family names.
    """
    new = reader.get("rope_parameters") or {}
    old = reader.get("rope_scaling") or {}
    theta = reader.get("rope_theta", reader.get("rotary_emb_base", 10_000.0))
    if not row.local_rope:
        return {"default": {"rope_theta": theta, **old, **new}}
    local_theta = reader.get("rope_local_base_freq")
    return {
        "default": {"rope_theta": theta, **old, **(new.get("full_attention") or {})},
        "local": {"rope_theta": local_theta, **(new.get("sliding_attention") or {})},
    }


def _build_rope(row: ArchSpec, reader: ConfigReader, values: dict[str, Any]) -> RopeSpec:
    scaling = {key: value for key, value in values.items() if key not in ("rope_theta", "type")}
    scaling["rope_type"] = _rope_type(row, values)
    scaling.setdefault("original_max_position_embeddings", reader.get("original_max_position_embeddings"))
    fraction = 1.0
    if row.rotary_fraction is not None:
        fraction = float(scaling.get("partial_rotary_factor", reader.number(row.rotary_fraction, 1.0)))
    rotary_dim = int(_head_dim(reader) * fraction)
    return RopeSpec(rotary_dim, float(values["rope_theta"]), scaling, reader.integer("max_position_embeddings"))


def _rope_type(row: ArchSpec, values: Mapping[str, Any]) -> str:
    name = values.get("rope_type") or values.get("type") or "default"
    # Phi-3's first releases called longrope "su", and for a while "yarn" (transformers Phi3Config).
    return "longrope" if "longrope" in row.rope_types and name in ("su", "yarn") else str(name)


def _layer_windows(row: ArchSpec, reader: ConfigReader) -> list[tuple[int | None, str | None]]:
    """Returns (window, rope table) of every layer."""
    count = reader.integer("num_hidden_layers")
    roped = _roped_layers(row, reader, count)
    sliding = _sliding_layers(row, reader, count, roped)
    window = reader.optional_integer("sliding_window") if row.window != "none" else None
    layers: list[tuple[int | None, str | None]] = []
    for index in range(count):
        slides = sliding[index] and window is not None
        table = "local" if slides and row.local_rope else "default"
        rope = table if row.positions == "rope" and roped[index] else None
        layers.append((window if slides else None, rope))
    return layers


def _roped_layers(row: ArchSpec, reader: ConfigReader, count: int) -> list[bool]:
    if not row.skips_rope:
        return [True] * count
    interval = reader.integer("no_rope_layer_interval")
    listed = reader.get("no_rope_layers")
    return [bool(listed[i]) if listed else (i + 1) % interval != 0 for i in range(count)]


def _sliding_layers(row: ArchSpec, reader: ConfigReader, count: int, roped: list[bool]) -> list[bool]:
    if row.window != "layer_types":
        return [row.window == "every_layer"] * count
    enabled = bool(reader.get("use_sliding_window", False))
    return [enabled and slides for slides in _layer_types(row, reader, roped)]


def _layer_types(row: ArchSpec, reader: ConfigReader, roped: list[bool]) -> list[bool]:
    """Returns which layers slide when sliding is enabled: as listed, by pattern, or by the family's rule."""
    types, pattern = reader.get("layer_types"), reader.get("sliding_window_pattern")
    first = int(reader.get("max_window_layers", 0))
    count = len(roped)
    if types is not None:
        return [_is_sliding(str(types[i])) for i in range(count)]
    if pattern is not None:
        return [(i + 1) % int(pattern) != 0 for i in range(count)]
    # SmolLM3 slides the layers without rope; Qwen slides those from max_window_layers on.
    return [not roped[i] if row.skips_rope else i >= first for i in range(count)]


def _is_sliding(layer_type: str) -> bool:
    if layer_type not in ("sliding_attention", "full_attention"):
        raise UnsupportedArchitecture(
            "the layer type is not supported",
            where="config.json layer_types",
            given=layer_type,
            allowed="full_attention, sliding_attention",
        )
    return layer_type == "sliding_attention"
