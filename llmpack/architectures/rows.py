"""The architecture table: one row per model family, and nothing about a family anywhere else.

To add a family, add its row here and its golden case in `tests/golden/cases.py`; the suite fails on a row without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from llmpack.architectures.arch_spec import ArchSpec
from llmpack.architectures.weights import Piece, Transform, WeightNames

Names = Mapping[str, str | tuple[str, ...]]


def _names(table: Names, transform: Transform = "none") -> dict[str, tuple[Piece, ...]]:
    return {
        name: tuple(Piece(piece, transform) for piece in ((pieces,) if isinstance(pieces, str) else pieces))
        for name, pieces in table.items()
    }


def _with_biases(table: Names) -> dict[str, str | tuple[str, ...]]:
    """Adds the `.bias` twin of every `.weight` entry."""

    def bias(pieces: str | tuple[str, ...]) -> str | tuple[str, ...]:
        names = (pieces,) if isinstance(pieces, str) else pieces
        return tuple(name.removesuffix("weight") + "bias" for name in names)

    return {**table, **{name.removesuffix("weight") + "bias": bias(pieces) for name, pieces in table.items()}}


_LLAMA_OUTER = {
    "embedding.weight": "embed_tokens.weight",
    "final_norm.weight": "norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_LLAMA_NORMS = {
    "layers.attention_norm.weight": "layers.{i}.input_layernorm.weight",
    "layers.mlp_norm.weight": "layers.{i}.post_attention_layernorm.weight",
}
_QKV_SPLIT = tuple(f"layers.{{i}}.self_attn.{n}_proj.weight" for n in "qkv")
_LLAMA_LINEARS: Names = {
    "layers.attention.qkv.weight": _QKV_SPLIT,
    "layers.attention.out.weight": "layers.{i}.self_attn.o_proj.weight",
    "layers.mlp.gate_up.weight": ("layers.{i}.mlp.gate_proj.weight", "layers.{i}.mlp.up_proj.weight"),
    "layers.mlp.down.weight": "layers.{i}.mlp.down_proj.weight",
}
_QK_NORMS = {
    "layers.attention.query_norm.weight": "layers.{i}.self_attn.q_norm.weight",
    "layers.attention.key_norm.weight": "layers.{i}.self_attn.k_norm.weight",
}
_GEMMA3_NORMS = {
    "final_norm.weight": "norm.weight",
    "layers.attention_norm.weight": "layers.{i}.input_layernorm.weight",
    "layers.post_attention_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    "layers.mlp_norm.weight": "layers.{i}.pre_feedforward_layernorm.weight",
    "layers.post_mlp_norm.weight": "layers.{i}.post_feedforward_layernorm.weight",
    **_QK_NORMS,
}
_PHI3_LINEARS = {
    "layers.attention.qkv.weight": "layers.{i}.self_attn.qkv_proj.weight",
    "layers.attention.out.weight": "layers.{i}.self_attn.o_proj.weight",
    "layers.mlp.gate_up.weight": "layers.{i}.mlp.gate_up_proj.weight",
    "layers.mlp.down.weight": "layers.{i}.mlp.down_proj.weight",
}
_GPT2_OUTER = {"embedding.weight": "wte.weight", "positions.weight": "wpe.weight", "lm_head.weight": "lm_head.weight"}
_GPT2_NORMS = {
    "final_norm.weight": "ln_f.weight",
    "layers.attention_norm.weight": "h.{i}.ln_1.weight",
    "layers.mlp_norm.weight": "h.{i}.ln_2.weight",
}
_GPT2_LINEARS = {
    "layers.attention.qkv.weight": "h.{i}.attn.c_attn.weight",
    "layers.attention.out.weight": "h.{i}.attn.c_proj.weight",
    "layers.mlp.up.weight": "h.{i}.mlp.c_fc.weight",
    "layers.mlp.down.weight": "h.{i}.mlp.c_proj.weight",
}
_NEOX_NORMS = {
    "final_norm.weight": "final_layer_norm.weight",
    "layers.attention_norm.weight": "layers.{i}.input_layernorm.weight",
    "layers.mlp_norm.weight": "layers.{i}.post_attention_layernorm.weight",
}
_NEOX_LINEARS = {
    "layers.attention.out.weight": "layers.{i}.attention.dense.weight",
    "layers.mlp.up.weight": "layers.{i}.mlp.dense_h_to_4h.weight",
    "layers.mlp.down.weight": "layers.{i}.mlp.dense_4h_to_h.weight",
}

LLAMA_WEIGHTS: WeightNames = _names({**_LLAMA_OUTER, **_LLAMA_NORMS, **_with_biases(_LLAMA_LINEARS)})
QWEN3_WEIGHTS: WeightNames = {**LLAMA_WEIGHTS, **_names(_QK_NORMS)}
GEMMA3_WEIGHTS: WeightNames = {**LLAMA_WEIGHTS, **_names(_GEMMA3_NORMS, "add_one")}
PHI3_WEIGHTS: WeightNames = _names({**_LLAMA_OUTER, **_LLAMA_NORMS, **_PHI3_LINEARS})
GPT2_WEIGHTS: WeightNames = {
    # Biases come from the twin table; the weights of GPT-2's Conv1D are stored [in, out].
    **_names(_with_biases({**_GPT2_NORMS, **_GPT2_LINEARS})),
    **_names(_GPT2_LINEARS, "transpose"),
    **_names(_GPT2_OUTER),
}
NEOX_WEIGHTS: WeightNames = {
    **_names({"embedding.weight": "embed_in.weight", "lm_head.weight": "embed_out.weight"}),
    **_names(_with_biases({**_NEOX_NORMS, **_NEOX_LINEARS})),
    **_names(
        _with_biases({"layers.attention.qkv.weight": "layers.{i}.attention.query_key_value.weight"}),
        "deinterleave_heads",
    ),
}

_ROWS = (
    ArchSpec(
        model_type="llama",
        transformers_class="LlamaForCausalLM",
        weights=LLAMA_WEIGHTS,
        prefix="model.",
        defaults={"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    ArchSpec(
        model_type="mistral",
        transformers_class="MistralForCausalLM",
        weights=LLAMA_WEIGHTS,
        prefix="model.",
        defaults={"hidden_act": "silu", "rms_norm_eps": 1e-6, "num_key_value_heads": 8, "sliding_window": 4096},
        window="every_layer",
    ),
    ArchSpec(
        model_type="qwen2",
        transformers_class="Qwen2ForCausalLM",
        weights=LLAMA_WEIGHTS,
        prefix="model.",
        defaults={"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_window_layers": 28},
        qkv_bias=True,
        window="layer_types",
    ),
    ArchSpec(
        model_type="qwen3",
        transformers_class="Qwen3ForCausalLM",
        weights=QWEN3_WEIGHTS,
        prefix="model.",
        defaults={"hidden_act": "silu", "rms_norm_eps": 1e-6, "max_window_layers": 28, "head_dim": 128},
        qk_norm=True,
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        window="layer_types",
    ),
    ArchSpec(
        model_type="gemma3_text",
        transformers_class="Gemma3ForCausalLM",
        weights=GEMMA3_WEIGHTS,
        prefix="model.",
        defaults={
            "hidden_act": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "use_sliding_window": True,
            "sliding_window_pattern": 6,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
        },
        sandwich=True,
        qk_norm=True,
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        scale_embedding=True,
        attention_scalar="query_pre_attn_scalar",
        softcaps=True,
        window="layer_types",
        local_rope=True,
    ),
    ArchSpec(
        model_type="gpt2",
        transformers_class="GPT2LMHeadModel",
        weights=GPT2_WEIGHTS,
        prefix="transformer.",
        defaults={"hidden_act": "gelu_new", "rms_norm_eps": 1e-5},
        leftovers=(r"\.attn\.(bias|masked_bias)$",),
        norm="layer",
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        positions="learned",
    ),
    ArchSpec(
        model_type="gpt_neox",
        transformers_class="GPTNeoXForCausalLM",
        weights=NEOX_WEIGHTS,
        prefix="gpt_neox.",
        defaults={
            "hidden_act": "gelu",
            "rms_norm_eps": 1e-5,
            "rotary_pct": 0.25,
            "attention_bias": True,
            "use_parallel_residual": True,
        },
        leftovers=(r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",),
        norm="layer",
        parallel="use_parallel_residual",
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias=True,
        gated_mlp=False,
        rotary_fraction="rotary_pct",
        rope_types=frozenset({"default", "linear", "yarn"}),
    ),
    ArchSpec(
        model_type="phi3",
        transformers_class="Phi3ForCausalLM",
        weights=PHI3_WEIGHTS,
        prefix="model.",
        defaults={"hidden_act": "silu", "rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
        rotary_fraction="partial_rotary_factor",
        rope_types=frozenset({"default", "longrope"}),
        window="every_layer",
    ),
    ArchSpec(
        model_type="smollm3",
        transformers_class="SmolLM3ForCausalLM",
        weights=LLAMA_WEIGHTS,
        prefix="model.",
        defaults={
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 2_000_000.0,
            "no_rope_layer_interval": 4,
            "max_window_layers": 0,
        },
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
        window="layer_types",
        skips_rope=True,
    ),
)

ROWS: Mapping[str, ArchSpec] = {row.model_type: row for row in _ROWS}
"""Every supported architecture, by model_type."""
