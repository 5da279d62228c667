"""What shapes can be asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from llmpack.architectures.resolve import build_decoder_spec
from llmpack.architectures.rows import ROWS
from llmpack.errors import PlanError
from llmpack.plan import engine
from llmpack.plan.options import CompileOptions
from llmpack.plan.plan import CompilePlan, build_plan

CONFIG: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def plan(config: dict[str, Any] | None = None, **options: Any) -> CompilePlan:
    spec = build_decoder_spec(ROWS["llama"], CONFIG | (config or {}))
    return build_plan(spec, CompileOptions(model="m", output=Path("out"), **options))


def test_defaults() -> None:
    resolved = plan()
    assert (resolved.max_seq_len, resolved.batch_size) == (512, 4)
    assert (resolved.prefill_buckets, resolved.decode_buckets) == ((32, 128), (1, 4))
    assert [p.name for p in resolved.programs] == ["prefill-32", "prefill-128", "decode-1", "decode-4", "head-32"]


def test_logits_is_one_more_program_when_asked_for() -> None:
    assert [p.name for p in plan(logits=True).programs] == [*(p.name for p in plan().programs), "logits"]


def test_the_default_length_is_bounded() -> None:
    assert plan({"max_position_embeddings": 131072}).max_seq_len == 2048


def test_default_buckets_fit_short_slots() -> None:
    assert plan(max_seq_len=48).prefill_buckets == (32,)
    assert plan(max_seq_len=16).prefill_buckets == (16,)


def test_buckets_are_sorted_and_unique() -> None:
    resolved = plan(prefill_buckets=(64, 8, 64), decode_buckets=(4, 1, 2))
    assert (resolved.prefill_buckets, resolved.decode_buckets) == ((8, 64), (1, 2, 4))


def test_kv_cache_bytes() -> None:
    assert plan(max_seq_len=128, batch_size=3).kv_cache_bytes == 2 * 2 * 3 * 2 * 128 * 16 * 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_seq_len": 513}, "max_seq_len.*513.*2 to 512"),
        ({"max_seq_len": 1}, "max_seq_len"),
        ({"max_seq_len": -4}, "max_seq_len"),
        ({"batch_size": 0}, "batch_size"),
        ({"prefill_buckets": (0,)}, "--prefill-buckets.*given: 0"),
        ({"prefill_buckets": (600,)}, "--prefill-buckets.*given: 600"),
        ({"decode_buckets": (1, 2)}, "--decode-buckets.*end with 4"),
        ({"decode_buckets": (1, 8)}, "--decode-buckets.*given: 8"),
        ({"engine": "tensorrt"}, "--engine.*tensorrt"),
        ({"quantize": "int3"}, "--quantize.*int3"),
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size.*2"),
    ],
)
def test_impossible_shapes_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        plan(**options)


@pytest.mark.parametrize(
    ("config", "named"), [({"head_dim": 12}, "multiples of 8"), ({"num_key_value_heads": 3}, "4 query heads over 3")]
)
def test_heads_that_cannot_run_are_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        plan(config)


class TestEngine:
    FEATURES = frozenset({*engine.INDUCTOR_CPU_FEATURES, engine.BFLOAT16_CPU_FEATURE})

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One with a compiler and all that inductor can use."""
        monkeypatch.setenv("CXX", sys.executable)
        monkeypatch.setattr(engine, "read_cpu_features", lambda: set(self.FEATURES))

    def test_auto_is_inductor_where_it_can_be_compiled(self) -> None:
        assert plan(engine="auto").engine == "inductor"
        assert plan().engine == "onnxruntime"

    def test_without_a_compiler_inductor_is_refused_and_auto_does_without(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CXX", "no-such-compiler")
        assert plan(engine="auto").engine == "onnxruntime"
        with pytest.raises(PlanError, match=r"there is no C\+\+ compiler \(no-such-compiler\).*--engine onnxruntime"):
            plan(engine="inductor")

    def test_every_missing_cpu_feature_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "read_cpu_features", lambda: set(self.FEATURES) - {"avx512f", "avx512_vnni"})
        assert plan(engine="auto").engine == "onnxruntime"
        with pytest.raises(PlanError, match="this CPU lacks avx512f; this CPU lacks avx512_vnni"):
            plan(engine="inductor")

    def test_auto_keeps_the_dtype_of_the_checkpoint_where_the_engine_can(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert dtype_of("bfloat16", engine="inductor") == "bfloat16"
        assert dtype_of("float16", engine="inductor") == "float32"
        assert dtype_of("bfloat16", engine="onnxruntime") == "float32"
        monkeypatch.setattr(engine, "read_cpu_features", lambda: set(engine.INDUCTOR_CPU_FEATURES))
        assert dtype_of("bfloat16", engine="inductor") == "float32"
        with pytest.raises(PlanError, match=r"on a CPU without avx512_bf16.*--dtype.*float32 or auto"):
            plan(engine="inductor", dtype="bfloat16")

    def test_required_features_are_those_that_libraries_are_compiled_with(self) -> None:
        assert engine.required_cpu_features("onnxruntime") == []
        assert set(engine.required_cpu_features("inductor")) == self.FEATURES

    def test_onnxruntime_has_no_bfloat16(self) -> None:
        with pytest.raises(PlanError, match=r"onnxruntime engine cannot compute.*bfloat16.*float32 or auto"):
            plan(dtype="bfloat16")

    def test_a_bfloat16_cache_takes_half(self) -> None:
        shape = {"max_seq_len": 128, "batch_size": 3, "engine": "inductor"}
        assert 2 * plan(**shape, dtype="bfloat16").kv_cache_bytes == plan(**shape, dtype="float32").kv_cache_bytes

    def test_the_program_for_ensembles_is_onnx(self) -> None:
        with pytest.raises(PlanError, match="--logits.*--engine inductor.*--engine onnxruntime"):
            plan(engine="inductor", logits=True)

    def test_odd_widths_have_no_pairs(self) -> None:
        with pytest.raises(PlanError, match="even.*95"):
            plan({"intermediate_size": 95}, engine="inductor", dtype="bfloat16")


def dtype_of(stored: str, **options: Any) -> str:
    spec = build_decoder_spec(ROWS["llama"], CONFIG)
    return build_plan(spec, CompileOptions(model="m", output=Path("out"), **options), stored_dtype=stored).dtype
