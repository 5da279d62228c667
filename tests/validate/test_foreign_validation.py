"""A config against an artifact of each other compiler, from its JSON alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmpack.validate.model import JsonValue
from llmpack.validate.run import ValidateOptions, validate_paths
from tests.validate.foreign_artifacts import FOREIGN_KINDS, write_foreign

FITS: dict[str, dict[str, JsonValue]] = {
    "optimum-rbln": {"max_num_seqs": 4, "max_model_len": 4096, "max_num_batched_tokens": 4096, "block_size": 4096},
    "optimum-neuron": {"model": "meta-llama/Llama-2-7b-chat-hf", "max_num_seqs": 4, "max_model_len": 4096},
    "onnxruntime-genai": {"max_num_seqs": 2, "max_model_len": 2048, "tensor_parallel_size": 1},
    "tensorrt-llm": {"max_num_seqs": 4, "max_model_len": 4096, "max_num_batched_tokens": 4096, "dtype": "float16"},
    "mlc-llm": {"max_num_seqs": 4, "max_model_len": 4096, "tensor_parallel_size": 2},
    "openvino": {"max_num_seqs": 4, "max_num_batched_tokens": 256},
}
CHANGES: list[tuple[str, dict[str, JsonValue], list[str]]] = [
    ("optimum-rbln", {"max_num_seqs": 2}, ["LP101"]),
    ("optimum-rbln", {"tensor_parallel_size": 2}, ["LP107"]),
    ("optimum-neuron", {"max_num_seqs": 2}, ["LP101"]),
    ("optimum-neuron", {"max_model_len": 2048}, ["LP102"]),
    ("optimum-neuron", {"model": "org/other"}, ["LP106"]),
    ("optimum-neuron", {"dtype": "float32"}, ["LP109"]),
    ("onnxruntime-genai", {"max_num_seqs": 8}, ["LP101"]),
    ("onnxruntime-genai", {"max_model_len": 8192}, ["LP102"]),
    ("onnxruntime-genai", {"enable_lora": True}, ["LP112"]),
    ("tensorrt-llm", {"max_num_batched_tokens": 16384}, ["LP103"]),
    ("tensorrt-llm", {"block_size": 16}, ["LP104"]),
    ("tensorrt-llm", {"tensor_parallel_size": 1}, ["LP107"]),
    ("tensorrt-llm", {"quantization": "awq"}, ["LP109"]),
    ("tensorrt-llm", {"pipeline_parallel_size": 2}, ["LP112"]),
    ("mlc-llm", {"max_num_seqs": 5}, ["LP101"]),
    ("mlc-llm", {"tensor_parallel_size": 1}, ["LP107"]),
    ("openvino", {"max_num_batched_tokens": 1024}, ["LP103"]),
    ("openvino", {"max_num_seqs": 256}, ["LP101"]),
]


def found(tmp_path: Path, kind: str, settings: dict[str, JsonValue]) -> list[str]:
    artifact = write_foreign(tmp_path / "artifact", kind)
    file = tmp_path / "model.json"
    file.write_text(json.dumps(settings))
    return [finding.rule_id for finding in validate_paths([file], ValidateOptions(artifact)).findings]


@pytest.mark.parametrize("kind", FOREIGN_KINDS)
def test_what_fits_is_clean(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, kind, FITS[kind]) == []


@pytest.mark.parametrize(("kind", "change", "expected"), CHANGES)
def test_one_change_is_found(tmp_path: Path, kind: str, change: dict[str, JsonValue], expected: list[str]) -> None:
    assert found(tmp_path, kind, {**FITS[kind], **change}) == expected


@pytest.mark.parametrize("kind", FOREIGN_KINDS)
def test_what_the_json_does_not_say_is_not_passed(tmp_path: Path, kind: str) -> None:
    artifact = write_foreign(tmp_path / "artifact", kind)
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"kv_cache_dtype": "int8", "revision": "b" * 40}))
    report = validate_paths([file], ValidateOptions(artifact))
    judged = {item.rule_id for item in (*report.findings, *report.not_checked)}
    assert {"LP106", "LP109", "LP130", "LP133"} <= judged
