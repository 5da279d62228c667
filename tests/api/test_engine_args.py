from __future__ import annotations

import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import llmpack
from llmpack import AsyncEngineArgs
from llmpack.api.startup import check_args
from llmpack.artifact.reader import open_artifact
from llmpack.errors import ArtifactError, UsageError, ValidationFailed
from llmpack.validate.model import JsonValue
from llmpack.validate.run import validate_settings
from llmpack.validate.vocabulary.engine_vocabulary import read_vocabulary
from tests.artifact.samples import write_sample


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """4 slots of 64 tokens with a prefill bucket of 32, compiled from tiny-llama."""
    write_sample(tmp_path / "artifact")
    return tmp_path / "artifact"


def find_complaints(artifact: Path, **settings: Any) -> list[str]:
    """The lines of the error, less those that a bare start has too: the sample is no real model."""
    bare = _complaints(artifact, {})
    return [line for line in _complaints(artifact, settings) if line not in bare]


def _complaints(artifact: Path, settings: dict[str, Any]) -> list[str]:
    args = AsyncEngineArgs(settings.pop("model", str(artifact)), **settings)
    try:
        check_args(args, open_artifact(args.artifact_dir))
    except ValidationFailed as error:
        return [line for line in str(error).splitlines() if line.startswith("  - ")]
    return []


TUTORIAL: dict[str, Any] = {
    "device": "rbln",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "max_model_len": 64,
    "block_size": 64,
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        TUTORIAL,
        {"device": "cpu"},
        {"device": "auto"},
        {"max_num_seqs": 2, "max_model_len": 40, "block_size": 40},
        {"generation_config": "vllm"},
        {"tokenizer": "tiny-llama", "dtype": "float32", "tensor_parallel_size": 1, "seed": 3},
    ],
)
def test_what_goes_with_the_artifact_passes(artifact: Path, settings: dict[str, Any]) -> None:
    assert find_complaints(artifact, **settings) == []
    assert find_complaints(artifact, model="tiny-llama", compiled_model_dir=artifact, **settings) == []


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"max_num_seqs": 5}, "LP101"),
        ({"max_num_seqs": 0}, "LP101"),
        ({"max_model_len": 65}, "LP102"),
        ({"max_num_batched_tokens": 31}, "LP103"),
        ({"block_size": 16}, "LP104"),
        ({"block_size": 64, "max_model_len": 32, "max_num_seqs": 9}, "LP101"),
        ({"tokenizer": "other"}, "LP106"),
        ({"tensor_parallel_size": 2}, "LP107"),
        ({"device": "cuda"}, "LP108"),
        ({"dtype": "bfloat16"}, "LP109"),
        ({"quantization": "awq"}, "LP109"),
        ({"max_num_seqs": "4"}, "LP110"),
        ({"seed": 1.5}, "LP110"),
    ],
)
def test_what_does_not_is_refused_by_its_rule(artifact: Path, settings: dict[str, Any], rule: str) -> None:
    complaints = find_complaints(artifact, **settings)
    assert len(complaints) == 1
    assert complaints[0].startswith(f"  - {rule} ")


def test_all_findings_are_in_one_error(artifact: Path) -> None:
    complaints = find_complaints(artifact, max_num_seqs=8, max_model_len=4096, block_size=16, device="tpu")
    assert [line.split()[1] for line in complaints] == ["LP101", "LP102", "LP104", "LP108"]


def test_the_generation_config_is_the_artifacts_or_none(artifact: Path) -> None:
    assert len(find_complaints(artifact, generation_config="/elsewhere")) == 1


@pytest.mark.parametrize("name", ["model", "tokenizer"])
def test_a_directory_of_another_model_is_refused(artifact: Path, tmp_path: Path, name: str) -> None:
    own, other = tmp_path / "tiny-llama", tmp_path / "other"
    for directory in (own, other):
        directory.mkdir()
    settings = {"compiled_model_dir": str(artifact)}
    assert find_complaints(artifact, **settings, **{name: str(own)}) == []
    assert find_complaints(artifact, **settings, **{name: str(artifact)}) == []
    complaints = find_complaints(artifact, **settings, **{name: str(other)})
    assert len(complaints) == 1
    assert "tiny-llama" in complaints[0]


def test_no_artifact_is_named(tmp_path: Path) -> None:
    for args in (AsyncEngineArgs("org/model"), AsyncEngineArgs("org/model", compiled_model_dir=tmp_path / "none")):
        with pytest.raises(ArtifactError, match="no such artifact"):
            llmpack.AsyncLLMEngine.from_engine_args(args)


def test_unknown_arguments_are_named_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        AsyncEngineArgs(model="x", max_num_seq=4, trust_remote_code=True)  # type: ignore[call-arg]
    assert "max_num_seq, trust_remote_code" in str(caught.value)
    assert "Did you mean max_num_seqs instead of max_num_seq?" in str(caught.value)
    with pytest.raises(UsageError, match="max_model_len instead of max_modellen"):
        llmpack.LLM("x", max_modellen=4)


def test_arguments_are_those_that_validate_knows() -> None:
    vocabulary = read_vocabulary("llmpack")
    known = {name for name in vocabulary.keys if vocabulary.knows(name, "arguments", None)}
    assert {field.name for field in fields(AsyncEngineArgs)} == known


def test_arguments_can_be_copied_and_changed() -> None:
    args = AsyncEngineArgs("x", max_num_seqs=2)
    assert copy.copy(args) == copy.deepcopy(args) == args
    assert replace(args, max_num_seqs=3).settings() == {"model": "x", "max_num_seqs": 3}


def test_the_offline_check_agrees(artifact: Path) -> None:
    settings: dict[str, JsonValue] = {"model": str(artifact), **TUTORIAL}
    notes = [finding for finding in validate_settings(settings, artifact).findings if finding.rule_id == "LP108"]
    assert [(finding.severity, finding.given) for finding in notes] == [("note", "rbln")]
