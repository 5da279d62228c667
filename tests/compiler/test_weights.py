"""Which checkpoint tensor becomes which parameter, and every way in which they can fail to fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from llmpack.architectures.resolve import build_decoder_spec
from llmpack.architectures.rows import ROWS
from llmpack.artifact.weights_file import map_weights
from llmpack.checkpoint.weights import TensorInfo
from llmpack.compiler.weights import WeightPlan, lay_out_weights, plan_weights, write_weights
from llmpack.errors import CorruptCheckpoint
from llmpack.plan.options import CompileOptions
from llmpack.plan.plan import build_plan

Array = npt.NDArray[Any]
CONFIG: dict[str, Any] = {
    "vocab_size": 13,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
}
SPEC = build_decoder_spec(ROWS["llama"], CONFIG)
SHAPES = {
    "model.embed_tokens.weight": (13, 16),
    "model.norm.weight": (16,),
    "lm_head.weight": (13, 16),
    "model.layers.0.input_layernorm.weight": (16,),
    "model.layers.0.post_attention_layernorm.weight": (16,),
    "model.layers.0.self_attn.q_proj.weight": (16, 16),
    "model.layers.0.self_attn.k_proj.weight": (8, 16),
    "model.layers.0.self_attn.v_proj.weight": (8, 16),
    "model.layers.0.self_attn.o_proj.weight": (16, 16),
    "model.layers.0.mlp.gate_proj.weight": (24, 16),
    "model.layers.0.mlp.up_proj.weight": (24, 16),
    "model.layers.0.mlp.down_proj.weight": (16, 24),
}


class Tensors:
    """A WeightSource over arrays."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = dict(arrays)

    @property
    def total_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def names(self) -> list[str]:
        return list(self.arrays)

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(str(self.arrays[name].dtype), self.arrays[name].shape)

    def read(self, name: str) -> Array:
        return self.arrays[name]


def checkpoint() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def plan(arrays: Mapping[str, Array], config: Mapping[str, Any] | None = None) -> WeightPlan:
    return plan_weights(ROWS["llama"], SPEC, Tensors(arrays), config or CONFIG)


def write(arrays: Mapping[str, Array], path: Path) -> dict[str, npt.NDArray[np.float32]]:
    weights = plan(arrays)
    compile_plan = build_plan(SPEC, CompileOptions(model="m", output=path, max_seq_len=16))
    head, stored = lay_out_weights(weights, compile_plan)
    write_weights(path, head, stored, (weights, compile_plan, Tensors(arrays)), lambda _: None)
    return map_weights(path)


def test_split_projections_are_fused_in_order(tmp_path: Path) -> None:
    arrays = checkpoint()
    written = write(arrays, tmp_path / "w")
    attention, mlp = "model.layers.0.self_attn.", "model.layers.0.mlp."
    np.testing.assert_array_equal(
        written["layers.0.attention.qkv.weight"],
        np.concatenate([arrays[f"{attention}{n}_proj.weight"] for n in "qkv"]),
    )
    np.testing.assert_array_equal(
        written["layers.0.mlp.gate_up.weight"],
        np.concatenate([arrays[f"{mlp}gate_proj.weight"], arrays[f"{mlp}up_proj.weight"]]),
    )
    assert set(written) >= {"ropes.default.cos", "ropes.default.sin", "lm_head.weight"}


def test_the_file_is_read_by_safetensors_too(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    ours = write(checkpoint(), tmp_path / "w")
    theirs = load_file(tmp_path / "w")
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)


def test_base_model_names_are_read_too() -> None:
    arrays = {name.removeprefix("model."): array for name, array in checkpoint().items()}
    assert plan(arrays).names["norm.weight"] == "norm.weight"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(np.float16)
    arrays = {name: array.astype(kind) for name, array in checkpoint().items()}
    written = write(arrays, tmp_path / "w")
    np.testing.assert_array_equal(written["embedding.weight"], arrays["model.embed_tokens.weight"].astype(np.float32))


class TestTying:
    def test_a_head_of_its_own_is_kept(self) -> None:
        assert not plan(checkpoint(), CONFIG | {"tie_word_embeddings": True}).tied

    def test_a_head_equal_to_the_embedding_is_shared(self) -> None:
        arrays = checkpoint()
        arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
        weights = plan(arrays)
        assert weights.tied
        assert "lm_head.weight" not in {parameter.name for parameter in weights.parameters}

    def test_no_head_means_tied(self) -> None:
        arrays = checkpoint()
        del arrays["lm_head.weight"]
        assert plan(arrays).tied

    def test_no_head_is_missing_when_the_config_says_untied(self) -> None:
        arrays = checkpoint()
        del arrays["lm_head.weight"]
        with pytest.raises(CorruptCheckpoint, match=r"missing: .*lm_head\.weight"):
            plan(arrays, CONFIG | {"tie_word_embeddings": False})


class TestBroken:
    def test_every_missing_and_left_over_tensor_is_named(self) -> None:
        arrays = checkpoint()
        del arrays["model.layers.0.mlp.up_proj.weight"], arrays["model.norm.weight"]
        arrays["model.layers.1.mlp.up_proj.weight"] = np.zeros((24, 16), np.float32)
        arrays["score.weight"] = np.zeros((2, 16), np.float32)
        with pytest.raises(CorruptCheckpoint) as caught:
            plan(arrays)
        lines = str(caught.value).splitlines()[1:]
        assert [line.strip() for line in lines] == [
            "missing: model.layers.0.mlp.up_proj.weight",
            "missing: model.norm.weight",
            "left over: model.layers.1.mlp.up_proj.weight",
            "left over: score.weight",
        ]

    def test_harmless_left_overs_are_not(self) -> None:
        plan(checkpoint() | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32)})

    @pytest.mark.parametrize("name", [name for name in SHAPES if name != "lm_head.weight"])
    def test_a_wrong_shape_is_named(self, name: str) -> None:
        arrays = checkpoint()
        arrays[name] = np.concatenate([arrays[name], arrays[name]])
        with pytest.raises(CorruptCheckpoint, match=rf"shape: .*{name}"):
            plan(arrays)
