"""config.json of a llama-family .gguf, from its metadata.

Source: llama.cpp's gguf-py/gguf/constants.py (keys), convert_hf_to_gguf.py (`LlamaModel.generate_extra_tensors` for
the rotary factors); transformers 5 `modeling_rope_utils.py` (the `rope_scaling` that says the same).
"""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from llmpack.checkpoint.gguf_file import GgufFile
from llmpack.checkpoint.gguf_weights import ROPE_FACTORS
from llmpack.checkpoint.weights import Tensor
from llmpack.errors import CorruptCheckpoint, UnsupportedArchitecture

FAMILY = "llama"
_DEFAULT_ROPE_THETA = 10000.0
_LLAMA3_CONTEXT_LEN = 8192  # the context that Llama 3.x stretches, when the file does not say
_LLAMA3_LOW, _LLAMA3_HIGH = 1.0, 4.0

# Keys that are read here, and keys that change nothing.
_READ = {
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scale_linear",
    "rope.scaling.finetuned",
    "tensor_data_layout",
}
# Keys that change the maths unless they hold this value.
_NEUTRAL = {
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "logit_scale": 1.0,
    "use_parallel_residual": False,
}


def check_family(file: GgufFile) -> None:
    """Raise UnsupportedArchitecture unless the file says llama and nothing that no llama says."""
    family = file.metadata.get("general.architecture")
    if family != FAMILY:
        raise UnsupportedArchitecture(
            "only llama-family .gguf files can be read so far",
            where=f"{file.path}, general.architecture",
            given=family,
            allowed=FAMILY,
            next_step="Pass the Hugging Face checkpoint of the same model.",
        )
    for key, value in file.metadata.items():
        name = key.removeprefix(f"{FAMILY}.")
        if name == key or name in _READ or (name in _NEUTRAL and value == _NEUTRAL[name]):
            continue
        near = difflib.get_close_matches(name, _READ, n=1)
        raise UnsupportedArchitecture(
            f"the setting {key!r} may change the maths and is not supported",
            where=str(file.path),
            given=value,
            allowed=f"{_NEUTRAL[name]!r}" if name in _NEUTRAL else f"no such key; the nearest known: {near or 'none'}",
        )


def build_config(file: GgufFile, rope_factors: Tensor | None) -> dict[str, Any]:
    """What config.json would say.

    Args:
        file: A file that passed `check_family`.
        rope_factors: Divisors of the rotary frequencies, [E/2], from the tensor of that name.

    Raises:
        CorruptCheckpoint: A needed key or tensor is missing.
        UnsupportedArchitecture: A shape or a rope scaling that no llama row has.
    """
    hidden_size = _need(file, "embedding_length")
    num_heads = _need(file, "attention.head_count")
    head_dim = _get(file, "attention.key_length", hidden_size // num_heads)
    _check_shapes(file, head_dim)
    theta = shortest_float(_get(file, "rope.freq_base", _DEFAULT_ROPE_THETA))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": _need(file, "feed_forward_length"),
        "num_hidden_layers": _need(file, "block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _get(file, "attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "vocab_size": _vocab_size(file),
        "max_position_embeddings": _need(file, "context_length"),
        "rms_norm_eps": shortest_float(_need(file, "attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(file, theta, head_dim, rope_factors),
        "hidden_act": "silu",
        "attention_bias": _has_bias(file, ("attn_q", "attn_k", "attn_v", "attn_output")),
        "mlp_bias": _has_bias(file, ("ffn_gate", "ffn_up", "ffn_down")),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "dtype": "float32",
    }


def shortest_float(value: float) -> float:
    """The shortest decimal number that is the same float32: 9.9999997e-06 becomes 1e-05, as it was written."""
    return float(str(np.float32(value)))


def _get(file: GgufFile, key: str, default: Any) -> Any:
    value = file.metadata.get(f"{FAMILY}.{key}", default)
    if isinstance(value, list):
        if len(set(value)) == 1:
            return value[0]
        raise UnsupportedArchitecture(
            "layers of different shapes are not supported", where=f"{file.path}, {FAMILY}.{key}", given=value
        )
    return value


def _need(file: GgufFile, key: str) -> Any:
    value = _get(file, key, None)
    if value is None:
        raise CorruptCheckpoint(f"the metadata key '{FAMILY}.{key}' is missing", where=str(file.path))
    return value


def _check_shapes(file: GgufFile, head_dim: int) -> None:
    for key in ("attention.value_length", "rope.dimension_count"):
        given = _get(file, key, head_dim)
        if given != head_dim:
            raise UnsupportedArchitecture(
                "values or rotary embedding of another width than the keys are not supported",
                where=f"{file.path}, {FAMILY}.{key}",
                given=given,
                allowed=str(head_dim),
            )


def _vocab_size(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise CorruptCheckpoint("the tensor 'token_embd.weight' is missing", where=str(file.path))
    return file.tensors["token_embd.weight"].shape[0]


def _has_bias(file: GgufFile, names: tuple[str, ...]) -> bool:
    present = [name for name in names if f"blk.0.{name}.bias" in file.tensors]
    if present and len(present) < len(names):
        raise UnsupportedArchitecture(
            "a llama has biases on all of these projections or on none",
            where=str(file.path),
            given=", ".join(present),
            allowed=", ".join(names),
        )
    return bool(present)


def _rope_scaling(file: GgufFile, theta: float, head_dim: int, factors: Tensor | None) -> dict[str, Any] | None:
    kind = _get(file, "rope.scaling.type", "linear" if _get(file, "rope.scale_linear", 1.0) != 1.0 else "none")
    if factors is not None:
        if kind != "none":
            raise UnsupportedArchitecture(
                f"rope scaling {kind!r} together with {ROPE_FACTORS} is not supported", where=str(file.path)
            )
        return _llama3_scaling(file, theta, head_dim, factors)
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedArchitecture(
            "unknown rope scaling", where=str(file.path), given=kind, allowed="none, linear, yarn, llama3"
        )
    factor = _get(file, "rope.scaling.factor", _get(file, "rope.scale_linear", None))
    if factor is None:
        raise CorruptCheckpoint(f"the metadata key '{FAMILY}.rope.scaling.factor' is missing", where=str(file.path))
    scaling = {"rope_type": kind, "factor": shortest_float(factor)}
    return scaling | (_yarn_settings(file) if kind == "yarn" else {})


def _yarn_settings(file: GgufFile) -> dict[str, Any]:
    return {
        "original_max_position_embeddings": _need(file, "rope.scaling.original_context_length"),
        "beta_fast": shortest_float(_get(file, "rope.scaling.yarn_beta_fast", 32.0)),
        "beta_slow": shortest_float(_get(file, "rope.scaling.yarn_beta_slow", 1.0)),
    }


def _llama3_scaling(file: GgufFile, theta: float, head_dim: int, factors: Tensor) -> dict[str, Any] | None:
    """The llama3 `rope_scaling` that gives exactly these factors; the file holds only the result."""
    if np.all(factors == 1.0):
        return None
    factor = shortest_float(float(factors.max()))
    original = _get(file, "rope.scaling.original_context_length", _LLAMA3_CONTEXT_LEN)
    expected = llama3_factors(theta, head_dim, factor, original)
    if expected.shape != factors.shape or not np.allclose(expected, factors, rtol=1e-4):
        raise UnsupportedArchitecture(
            f"the rotary factors ({ROPE_FACTORS}) are not those of a llama3 scaling",
            where=str(file.path),
            given=np.asarray(factors).round(3).tolist(),
            next_step="Pass the Hugging Face checkpoint of the same model.",
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": original,
    }


def llama3_factors(theta: float, head_dim: int, factor: float, original_len: int) -> Tensor:
    """Divisors of the rotary frequencies under llama3 scaling, float64 [E/2].

    Frequencies that turn at least 4 times in the original context stay, those that turn less than once are divided
    by `factor`, those between are blended.
    """
    frequencies = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = original_len * frequencies / (2 * np.pi)
    blend = np.clip((turns - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - blend) / factor + blend))
