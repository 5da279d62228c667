"""One tiny random model, or several, for each row of the architecture table. All dimensions are pairwise different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from llmpack.artifact.requirements import read_cpu_features
from llmpack.plan.engine import BFLOAT16_CPU_FEATURE, find_obstacles

COMPILES_LIBRARIES = pytest.mark.skipif(
    bool(find_obstacles()) or BFLOAT16_CPU_FEATURE not in read_cpu_features(),
    reason="the inductor engine needs g++ and AVX-512 with VNNI and BF16",
)
MAX_SEQ_LEN = 64
BATCH_SIZE = 3
PREFILL_BUCKETS = (8, 16)
DECODE_BUCKETS = (1, 3)
WINDOW = 11

_LLAMA_LIKE: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
_SPLIT_HEADS: Mapping[str, Any] = {**_LLAMA_LIKE, "hidden_size": 96, "head_dim": 16}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
}


@dataclass(frozen=True)
class GoldenCase:
    """A model to compile and compare.

    Attributes:
        model_type: The row.
        variant: What is special about it.
        config: Arguments of the transformers config.
        windowed: The window is smaller than the sequences, so it must show.
        compile_options: Beyond the shapes above.
    """

    model_type: str
    variant: str
    config: Mapping[str, Any]
    windowed: bool = False
    compile_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.model_type}-{self.variant}"


CASES = (
    GoldenCase("llama", "plain", _LLAMA_LIKE),
    GoldenCase(
        "llama", "tied-biased", {**_LLAMA_LIKE, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    ),
    GoldenCase(
        "llama",
        "rope-linear",
        {**_LLAMA_LIKE, "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    ),
    GoldenCase("llama", "rope-llama3", {**_LLAMA_LIKE, "rope_parameters": _LLAMA3}),
    GoldenCase("llama", "rope-yarn", {**_LLAMA_LIKE, "rope_parameters": _YARN}),
    GoldenCase("mistral", "window", {**_LLAMA_LIKE, "sliding_window": WINDOW}, windowed=True),
    GoldenCase("mistral", "no-window", {**_LLAMA_LIKE, "sliding_window": None}),
    GoldenCase("qwen2", "plain", _SPLIT_HEADS),
    GoldenCase(
        "qwen2",
        "window-in-some-layers",
        {**_SPLIT_HEADS, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        windowed=True,
    ),
    GoldenCase("qwen3", "plain", _LLAMA_LIKE),
    GoldenCase(
        "gemma3_text",
        "alternating",
        {
            **_LLAMA_LIKE,
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
            "query_pre_attn_scalar": 24,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        windowed=True,
    ),
    GoldenCase(
        "gemma3_text",
        "softcapped",
        {
            **_LLAMA_LIKE,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 16,
            "tie_word_embeddings": True,
            "final_logit_softcapping": 5.0,
        },
        windowed=True,
    ),
    GoldenCase(
        "gpt2", "plain", {"vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 72, "n_inner": 80}
    ),
    GoldenCase("gpt_neox", "parallel", {**_SPLIT_HEADS, "num_key_value_heads": None, "head_dim": None}),
    GoldenCase(
        "gpt_neox",
        "sequential",
        {
            **_SPLIT_HEADS,
            "num_key_value_heads": None,
            "head_dim": None,
            "use_parallel_residual": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
        },
    ),
    GoldenCase(
        "phi3",
        "longrope-long",
        {
            **_SPLIT_HEADS,
            "head_dim": None,
            "original_max_position_embeddings": 32,
            "rope_parameters": {**_LONGROPE, "partial_rotary_factor": 0.75},
        },
    ),
    GoldenCase(
        "phi3",
        "longrope-short",
        {
            **_SPLIT_HEADS,
            "head_dim": None,
            "original_max_position_embeddings": 64,
            "rope_parameters": {**_LONGROPE, "partial_rotary_factor": 0.75},
        },
    ),
    GoldenCase("phi3", "window", {**_SPLIT_HEADS, "head_dim": None, "sliding_window": WINDOW}, windowed=True),
    GoldenCase(
        "smollm3",
        "some-layers-without-rope",
        {
            **_SPLIT_HEADS,
            "head_dim": None,
            "no_rope_layer_interval": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
)
