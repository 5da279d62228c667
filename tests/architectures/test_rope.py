"""Rotary tables against transformers' own, at every position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmpack.architectures.rope import build_tables, choose_rope_table
from llmpack.architectures.spec import RopeSpec

MAX_POSITION = 4096
ORIGINAL = 1024

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL, "attention_factor": 1.3},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": ORIGINAL,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 10 for i in range(32)],
        "long_factor": [1.0 + i for i in range(32)],
        "original_max_position_embeddings": ORIGINAL,
        "factor": 4.0,
    },
]


@pytest.mark.compile
@pytest.mark.parametrize("length", [256, 2048], ids=["short", "long"])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: "-".join(str(v) for v in list(s.values())[:2]))
def test_tables_equal_transformers(scaling: dict[str, Any], length: int) -> None:
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        head_dim=64,
        max_position_embeddings=MAX_POSITION,
        rope_parameters={"rope_theta": 5e5, **scaling},
    )
    rotary = LlamaRotaryEmbedding(config)
    cos, sin = rotary(torch.zeros(1), torch.arange(length)[None])
    rope = RopeSpec(64, 5e5, scaling, MAX_POSITION)
    given_cos, given_sin = build_tables(rope, length)
    np.testing.assert_allclose(given_cos, cos[0, :, :32].numpy(), rtol=0, atol=2e-4)
    np.testing.assert_allclose(given_sin, sin[0, :, :32].numpy(), rtol=0, atol=2e-4)


def test_the_rope_table_is_chosen_by_length() -> None:
    longrope = RopeSpec(64, 1e4, SCALINGS[-1], MAX_POSITION)
    assert choose_rope_table({"default": longrope}, ORIGINAL) == "short"
    assert choose_rope_table({"default": longrope}, ORIGINAL + 1) == "long"
    assert choose_rope_table({"default": RopeSpec(64, 1e4, SCALINGS[0], MAX_POSITION)}, MAX_POSITION) == "default"
