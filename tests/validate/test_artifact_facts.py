"""Facts of every kind of artifact, from its JSON alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmpack.artifact.manifest import MANIFEST_NAME
from llmpack.errors import ArtifactError, ManifestError
from llmpack.validate.artifacts.detect import is_artifact, read_facts
from tests.artifact.samples import write_sample
from tests.validate.foreign_artifacts import FOREIGN_KINDS, LLAMA, MLC, RBLN_NEW, write_foreign, write_json, write_rbln


def test_llmpack_manifest(tmp_path: Path) -> None:
    write_sample(tmp_path / "a")
    facts = read_facts(tmp_path / "a")
    assert (facts.kind, facts.is_fixed_shape) == ("llmpack", False)
    assert (facts.batch_size, facts.max_seq_len, facts.kv_block_size, facts.prefill_buckets) == (4, 64, 64, (32,))
    assert (facts.devices, facts.dtype, facts.quantization, facts.kv_cache_dtype) == (
        ("cpu",),
        "float32",
        "none",
        "float32",
    )
    assert (facts.model_id, facts.is_hub_model, facts.vocab_size) == ("tiny-llama", False, 320)
    assert facts.checked_topics == {"runtime-range", "files", "tokenizer", "machine"}


def test_rbln_old_form(tmp_path: Path) -> None:
    facts = read_facts(write_rbln(tmp_path))
    assert (facts.batch_size, facts.max_seq_len, facts.kv_block_size, facts.max_num_batched_tokens) == (
        4,
        4096,
        4096,
        4096,
    )
    assert (facts.tensor_parallel_size, facts.devices, facts.is_fixed_shape) == (4, ("rbln",), True)
    assert facts.model_id == "meta-llama/Llama-2-7b-chat-hf"
    assert facts.dtype is None


def test_rbln_new_form_steps_by_its_prefill_chunk(tmp_path: Path) -> None:
    facts = read_facts(write_json(tmp_path, "rbln_config.json", RBLN_NEW))
    assert (facts.kv_block_size, facts.max_num_batched_tokens, facts.tensor_parallel_size) == (4096, 128, 8)
    assert (facts.dtype, facts.quantization) == ("float32", "int4")
    earlier = {**RBLN_NEW, "optimum_rbln_version": "0.10.4"}
    assert read_facts(write_json(tmp_path, "rbln_config.json", earlier)).max_num_batched_tokens == 8192


def test_rbln_oldest_form_keeps_numbers_in_config_json(tmp_path: Path) -> None:
    old = {**LLAMA, "rbln_max_seq_len": 2048, "rbln_batch_size": 2, "rbln_tensor_parallel_size": 4}
    facts = read_facts(write_json(tmp_path, "config.json", old))
    assert (facts.fact_file, facts.batch_size, facts.max_seq_len, facts.tensor_parallel_size) == (
        "config.json",
        2,
        2048,
        4,
    )


def test_rbln_with_two_numbers_of_ranks_knows_none(tmp_path: Path) -> None:
    torn = {**RBLN_NEW, "_compile_cfgs": [{"num_devices": 8}, {"num_devices": 4}]}
    assert read_facts(write_json(tmp_path, "rbln_config.json", torn)).tensor_parallel_size is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("optimum-neuron", {"batch_size": 4, "max_seq_len": 4096, "tensor_parallel_size": 2, "dtype": "bfloat16"}),
        ("optimum-neuron", {"revision": "f" * 40, "devices": ("neuron",), "is_fixed_shape": True}),
        ("onnxruntime-genai", {"batch_size": 4, "max_seq_len": 4096, "devices": ("cuda",), "vocab_size": 32000}),
        ("tensorrt-llm", {"batch_size": 4, "max_seq_len": 4096, "max_num_batched_tokens": 8192, "kv_block_size": 64}),
        ("tensorrt-llm", {"tensor_parallel_size": 2, "quantization": "fp8", "kv_cache_dtype": "fp8"}),
        ("mlc-llm", {"batch_size": 4, "max_seq_len": 4096, "max_num_batched_tokens": 2048, "tensor_parallel_size": 2}),
        ("openvino", {"batch_size": 4, "max_num_batched_tokens": 512, "devices": ("gpu",), "is_fixed_shape": False}),
    ],
)
def test_foreign_facts(tmp_path: Path, kind: str, expected: dict[str, object]) -> None:
    facts = read_facts(write_foreign(tmp_path, kind))
    assert facts.kind == kind
    assert {name: getattr(facts, name) for name in expected} == expected


@pytest.mark.parametrize("kind", FOREIGN_KINDS)
def test_what_a_file_does_not_say_is_unknown(tmp_path: Path, kind: str) -> None:
    facts = read_facts(write_foreign(tmp_path, kind))
    assert facts.kv_cache_dtype is None or kind == "tensorrt-llm"
    assert "machine" not in facts.checked_topics


def test_wrong_types_in_foreign_json_are_unknown(tmp_path: Path) -> None:
    facts = read_facts(
        write_json(tmp_path, "mlc-chat-config.json", {**MLC, "context_window_size": -1, "vocab_size": "x"})
    )
    assert (facts.max_seq_len, facts.vocab_size) == (None, None)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1, 2]", b"[" * 100_000, b"{", b"null"])
@pytest.mark.parametrize(
    "name", ["rbln_config.json", "neuron_config.json", "genai_config.json", "mlc-chat-config.json"]
)
def test_rubbish_is_an_error_with_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=name):
        read_facts(tmp_path)


def test_no_artifact_names_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="rbln_config.json"):
        read_facts(tmp_path)
    assert not is_artifact(tmp_path)
    assert not is_artifact(tmp_path / "nothing")


def test_newer_manifest_is_a_problem_and_not_an_error(tmp_path: Path) -> None:
    write_sample(tmp_path / "a")
    file = tmp_path / "a" / MANIFEST_NAME
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({**manifest, "schema_version": 99}))
    facts = read_facts(tmp_path / "a")
    assert facts.batch_size is None
    assert [problem.given for problem in facts.problems_of("runtime-range")] == ["schema 99"]


def test_broken_manifest_is_an_error(tmp_path: Path) -> None:
    write_sample(tmp_path / "a")
    (tmp_path / "a" / MANIFEST_NAME).write_text("{}")
    with pytest.raises(ManifestError):
        read_facts(tmp_path / "a")


def test_altered_missing_and_extra_files_are_problems(tmp_path: Path) -> None:
    root = tmp_path / "a"
    write_sample(root)
    (root / "tokenizer.json").unlink()
    (root / "left-over").write_bytes(b"x")
    content = bytearray((root / "weights" / "model.safetensors").read_bytes())
    content[5] ^= 1
    (root / "weights" / "model.safetensors").write_bytes(bytes(content))
    assert {problem.path for problem in read_facts(root).problems_of("files")} == {
        "tokenizer.json",
        "left-over",
        "weights/model.safetensors",
    }
    assert {problem.path for problem in read_facts(root, "sizes").problems_of("files")} == {
        "tokenizer.json",
        "left-over",
    }


def test_foreign_files_that_are_empty_or_pointers_are_problems(tmp_path: Path) -> None:
    root = write_rbln(tmp_path)
    (root / "prefill.rbln").write_bytes(b"")
    (root / "decoder.rbln").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    problems = read_facts(root).problems_of("files")
    assert [(problem.path, "LFS" in problem.message) for problem in problems] == [
        ("decoder.rbln", True),
        ("prefill.rbln", False),
    ]


def test_tokens_outside_the_vocabulary(tmp_path: Path) -> None:
    root = write_rbln(tmp_path)
    write_json(root, "tokenizer.json", {"model": {"vocab": {"a": 0, "b": 32000}}, "added_tokens": []})
    write_json(root, "generation_config.json", {"eos_token_id": [2, 40000]})
    assert [(problem.path, problem.given) for problem in read_facts(root).problems_of("tokenizer")] == [
        ("tokenizer.json", "highest id 32000"),
        ("generation_config.json", "40000"),
    ]


def test_no_end_token(tmp_path: Path) -> None:
    root = write_rbln(tmp_path)
    write_json(root, "config.json", {key: value for key, value in LLAMA.items() if key != "eos_token_id"})
    assert ["no end-of-text token" in problem.message for problem in read_facts(root).problems_of("tokenizer")] == [
        True
    ]


@pytest.mark.parametrize(
    "template", ["{% for m in messages %}", "{{ raise_exception('no') }}", "{{ messages[9].x.y }}"]
)
def test_chat_template_that_does_not_render(tmp_path: Path, template: str) -> None:
    root = write_rbln(tmp_path)
    (root / "chat_template.jinja").write_text(template)
    assert [problem.path for problem in read_facts(root).problems_of("tokenizer")] == ["chat_template.jinja"]


def test_chat_template_that_renders(tmp_path: Path) -> None:
    root = write_rbln(tmp_path)
    (root / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    assert read_facts(root).problems_of("tokenizer") == ()
