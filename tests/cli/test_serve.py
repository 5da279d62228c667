"""What `serve` refuses before it loads anything, and how its options are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.artifact.reader import open_artifact
from llmpack.cli.app import app
from llmpack.cli.serve import EngineLimits, _parse_list, _resolve_limits
from llmpack.errors import ArtifactError, IntegrityError, UsageError, ValidationFailed
from tests.artifact.samples import write_sample


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write_sample(tmp_path / "model")
    return tmp_path / "model"


def serve(artifact: Path, *options: str) -> None:
    app(["serve", str(artifact), "--port", "0", *options], standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--max-num-seqs", "5"], "LP101 max_num_seqs"),
        (["--max-num-seqs", "0"], "LP101 max_num_seqs"),
        (["--max-model-len", "65"], "LP102 max_model_len"),
        (["--block-size", "32"], "LP104 block_size"),
        (["--tensor-parallel-size", "2"], "LP107 tensor_parallel_size"),
        (["--dtype", "bfloat16"], "LP109 dtype"),
        (["--device", "cuda"], "LP108 device"),
    ],
)
def test_what_does_not_go_with_the_artifact_is_refused(artifact: Path, options: list[str], expected: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        serve(artifact, *options)
    assert expected in str(caught.value)


def test_all_mismatches_are_named_at_once(artifact: Path) -> None:
    with pytest.raises(ValidationFailed, match=r"LP101.*LP102"):
        serve(artifact, "--max-num-seqs", "5", "--max-model-len", "65")


def test_adopt_takes_the_compiled_values_and_says_so(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = _resolve_limits(open_artifact(artifact), {"max_model_len": 65, "max_num_seqs": 2}, adopt=True)
    assert limits == EngineLimits(max_model_len=64, max_num_seqs=2)
    assert "--adopt: max_model_len: 65 replaced by the compiled 64" in capsys.readouterr().err


def test_less_than_was_compiled_is_taken(artifact: Path) -> None:
    limits = _resolve_limits(open_artifact(artifact), {"max_model_len": 32, "max_num_seqs": None}, adopt=False)
    assert limits == EngineLimits(max_model_len=32, max_num_seqs=4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--generation-config", "other"], "--generation-config; given: other; allowed: auto, vllm"),
        (["--allowed-origins", "[oops"], "--allowed-origins; given: [oops"),
    ],
)
def test_options_that_cannot_be_read_are_refused(artifact: Path, options: list[str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        serve(artifact, *options)
    assert expected in str(caught.value)


def test_altered_artifact_is_not_served(artifact: Path) -> None:
    content = bytearray((artifact / "weights/model.safetensors").read_bytes())
    content[17] ^= 1
    (artifact / "weights/model.safetensors").write_bytes(content)
    with pytest.raises(IntegrityError, match="altered"):
        serve(artifact)


def test_missing_artifact_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such artifact"):
        serve(tmp_path / "none")


def test_lists_may_be_json_or_repeated() -> None:
    assert _parse_list("--allowed-origins", ["https://a", '["https://b", "*"]']) == ("https://a", "https://b", "*")
    assert _parse_list("--allowed-origins", None) == ()
