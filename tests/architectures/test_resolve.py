"""config.json to DecoderSpec: published models, settings that change the maths, and what must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmpack.architectures.resolve import build_decoder_spec, find_row
from llmpack.architectures.rows import ROWS
from llmpack.architectures.spec import DecoderSpec
from llmpack.errors import CheckpointError, LlmpackError, UnsupportedArchitecture

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
LLAMA: dict[str, Any] = json.loads((CONFIGS / "llama-3.2-1b-instruct.json").read_text())


def read(name: str) -> DecoderSpec:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    return build_decoder_spec(find_row(config), config)


def resolve(**changes: Any) -> DecoderSpec:
    config = {name: value for name, value in (LLAMA | changes).items() if value != "absent"}
    return build_decoder_spec(find_row(config), config)


PUBLISHED = [path for path in sorted(CONFIGS.glob("*.json")) if path.stem != "SOURCES"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_models_resolve_or_are_refused_by_name(path: Path) -> None:
    config = json.loads(path.read_text())
    if config["model_type"] in ROWS:
        spec = build_decoder_spec(find_row(config), config)
        assert len(spec.layers) == config.get("num_hidden_layers", config.get("n_layer"))
    else:
        with pytest.raises(UnsupportedArchitecture, match=config["model_type"]) as caught:
            find_row(config)
        assert all(name in str(caught.value) for name in ROWS)


def test_nearest_row_is_named() -> None:
    with pytest.raises(UnsupportedArchitecture, match="nearest supported architecture is `gemma3_text`"):
        find_row({"model_type": "gemma3"})


def test_gemma3_alternates_windows_and_tables() -> None:
    spec = read("gemma-3-1b-it")
    assert [layer.attention.window for layer in spec.layers[:7]] == [512] * 5 + [None, 512]
    assert [layer.attention.rope for layer in spec.layers[:7]] == ["local"] * 5 + ["default", "local"]
    assert (spec.ropes["default"].theta, spec.ropes["local"].theta) == (1e6, 1e4)
    assert spec.layers[0].attention.scale == 256**-0.5
    assert len(spec.layer_kinds) == 2


def test_smollm3_skips_rope_in_every_fourth_layer() -> None:
    assert [layer.attention.rope for layer in read("smollm3-3b").layers[:4]] == ["default"] * 3 + [None]


def test_an_explicit_null_window_is_no_window() -> None:
    assert read("mistral-7b-v0.1").layers[0].attention.window == 4096
    assert read("mistral-7b-v0.3").layers[0].attention.window is None


def test_qwen2_slides_only_when_it_says_so() -> None:
    assert read("qwen2.5-0.5b-instruct").layers[-1].attention.window is None


def test_partial_rotary_share() -> None:
    assert read("pythia-70m").ropes["default"].rotary_dim == 16
    assert read("phi-4-mini-instruct").ropes["default"].rotary_dim == 96


def test_old_and_new_rope_spellings_agree() -> None:
    old = resolve()
    new = resolve(
        rope_scaling="absent", rope_theta="absent", rope_parameters={**LLAMA["rope_scaling"], "rope_theta": 500000.0}
    )
    assert old.ropes == new.ropes


def test_unused_keys_are_recorded() -> None:
    assert resolve(my_note="hello").ignored_config_keys == ("my_note",)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_act": "relu6"}, "relu6"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"sliding_window": 1024}, "sliding_window"),
        ({"layer_types": ["sliding_attention"] * 16}, "layer_types"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"residual_multiplier": 0.22}, "residual_multiplier"),
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"alibi": True}, "alibi"),
        ({"use_qk_norm": True}, "use_qk_norm"),
    ],
)
def test_settings_that_change_the_maths_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=named):
        resolve(**changes)


def test_all_such_settings_are_named_at_once() -> None:
    with pytest.raises(UnsupportedArchitecture, match=r"alibi=True, logit_scale=0\.5"):
        resolve(alibi=True, logit_scale=0.5)


@pytest.mark.parametrize("value", ["absent", None, 0, -1, True, 12.5, "2048"])
def test_hidden_size_must_be_a_positive_integer(value: object) -> None:
    with pytest.raises(CheckpointError, match="hidden_size"):
        resolve(hidden_size=value)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(LlmpackError, match="num_attention_heads"):
        resolve(num_attention_heads=7, head_dim="absent")
