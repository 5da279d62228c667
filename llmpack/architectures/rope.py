"""Rotary position tables: frequencies of every supported scaling, and the cos / sin tables built from them.

Source: transformers 5.24 `modeling_rope_utils.py` (`ROPE_INIT_FUNCTIONS`). All arithmetic is float32 in the same
order as there, since the tables must agree with it at large positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llmpack.architectures.spec import RopeSpec
from llmpack.errors import UnsupportedArchitecture

Floats = npt.NDArray[np.float32]
RopeTable = Literal["default", "short", "long"]


def base_frequencies(rope: RopeSpec) -> Floats:
    """Returns [rotary_dim / 2] unscaled inverse frequencies."""
    return np.float32(1.0) / _wavelengths(rope)


def _wavelengths(rope: RopeSpec) -> Floats:
    """Returns [rotary_dim / 2] theta ** (2 i / rotary_dim)."""
    exponent = np.arange(0, rope.rotary_dim, 2, dtype=np.float32) / np.float32(rope.rotary_dim)
    return np.asarray(np.power(np.float32(rope.theta), exponent), dtype=np.float32)


def choose_rope_table(ropes: Mapping[str, RopeSpec], max_seq_len: int) -> RopeTable:
    """Returns which of longrope's two factor lists a fixed max_seq_len uses, "default" for models without longrope.

    transformers switches to the long list when a sequence grows past the original length, and recomputes its cache.
    A compiled artifact decides once: the long list whenever max_seq_len can exceed that length (as vLLM does).
    """
    for rope in ropes.values():
        if rope.rope_type == "longrope":
            original = _number(rope, "original_max_position_embeddings")
            return "long" if max_seq_len > original else "short"
    return "default"


def build_tables(rope: RopeSpec, max_seq_len: int) -> tuple[Floats, Floats]:
    """Returns (cos, sin), each [max_seq_len, rotary_dim / 2], with the scaling's attention factor multiplied in."""
    inverse, attention_factor = _SCALINGS[rope.rope_type](rope, max_seq_len)
    angles = np.arange(max_seq_len, dtype=np.float32)[:, None] * inverse[None, :]
    factor = np.float32(attention_factor)
    return np.cos(angles) * factor, np.sin(angles) * factor


def check_scaling(rope: RopeSpec, allowed: frozenset[str]) -> None:
    """Raises UnsupportedArchitecture for a rope type that the row or llmpack does not know, or a missing parameter."""
    if rope.rope_type not in _SCALINGS or rope.rope_type not in allowed:
        raise UnsupportedArchitecture(
            f"rope type `{rope.rope_type}` is not supported for this architecture",
            where="config.json rope_scaling / rope_parameters",
            allowed=", ".join(sorted(allowed & set(_SCALINGS))),
        )
    for name in _REQUIRED[rope.rope_type]:
        if rope.scaling.get(name) is None:
            raise UnsupportedArchitecture(
                f"rope type `{rope.rope_type}` needs `{name}`", where="config.json rope_scaling / rope_parameters"
            )


def _number(rope: RopeSpec, name: str, default: float | None = None) -> float:
    value: Any = rope.scaling.get(name)
    return float(value if value is not None else default)  # type: ignore[arg-type]


def _default(rope: RopeSpec, _max_seq_len: int) -> tuple[Floats, float]:
    return base_frequencies(rope), 1.0


def _linear(rope: RopeSpec, _max_seq_len: int) -> tuple[Floats, float]:
    return base_frequencies(rope) / np.float32(_number(rope, "factor")), 1.0


def _llama3(rope: RopeSpec, _max_seq_len: int) -> tuple[Floats, float]:
    inverse = base_frequencies(rope)
    factor, low, high = (_number(rope, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    original = _number(rope, "original_max_position_embeddings")
    wavelength = np.float32(2 * math.pi) / inverse
    smooth = (np.float32(original) / wavelength - np.float32(low)) / np.float32(high - low)
    scaled = inverse / np.float32(factor)
    blended = (1 - smooth) * scaled + smooth * inverse
    is_long, is_short = wavelength > original / low, wavelength < original / high
    return np.where(is_long, scaled, np.where(is_short, inverse, blended)).astype(np.float32), 1.0


def _yarn(rope: RopeSpec, _max_seq_len: int) -> tuple[Floats, float]:
    original = _number(rope, "original_max_position_embeddings", rope.max_position_embeddings)
    factor = _number(rope, "factor", rope.max_position_embeddings / original)
    inverse = base_frequencies(rope)
    low, high = _yarn_range(rope, original)
    ramp = (np.arange(rope.rotary_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low)
    extrapolated = 1 - np.clip(ramp, 0, 1)
    scaled = inverse / np.float32(factor)
    return (scaled * (1 - extrapolated) + inverse * extrapolated).astype(np.float32), _yarn_attention(rope, factor)


def _yarn_range(rope: RopeSpec, original: float) -> tuple[float, float]:
    """Returns the dimensions between which yarn blends interpolation into extrapolation."""

    def dimension(rotations: float) -> float:
        turns = original / (rotations * 2 * math.pi)
        return rope.rotary_dim * math.log(turns) / (2 * math.log(rope.theta))

    low, high = dimension(_number(rope, "beta_fast", 32)), dimension(_number(rope, "beta_slow", 1))
    if rope.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    return low, high if high != low else high + 0.001


def _yarn_attention(rope: RopeSpec, factor: float) -> float:
    if rope.scaling.get("attention_factor") is not None:
        return _number(rope, "attention_factor")

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if rope.scaling.get("mscale") and rope.scaling.get("mscale_all_dim"):
        return mscale(_number(rope, "mscale")) / mscale(_number(rope, "mscale_all_dim"))
    return mscale(1.0)


def _longrope(rope: RopeSpec, max_seq_len: int) -> tuple[Floats, float]:
    original = _number(rope, "original_max_position_embeddings")
    factor = _number(rope, "factor", rope.max_position_embeddings / original)
    default = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    table = choose_rope_table({"": rope}, max_seq_len)
    extension = np.asarray(rope.scaling[f"{table}_factor"], dtype=np.float32)
    return np.float32(1.0) / (extension * _wavelengths(rope)), _number(rope, "attention_factor", default)


_SCALINGS: Mapping[str, Callable[[RopeSpec, int], tuple[Floats, float]]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
}
