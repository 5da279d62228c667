"""What `serve` refuses before it loads anything, and how its options are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.cli.app import app
from llmpack.cli.serve import _parse_list
from llmpack.errors import ArtifactError, IntegrityError, UsageError
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
        (["--max-num-seqs", "5"], "--max-num-seqs; given: 5; allowed: 1 to 4, the compiled batch_size"),
        (["--max-num-seqs", "0"], "--max-num-seqs; given: 0"),
        (["--max-model-len", "65"], "--max-model-len; given: 65; allowed: 1 to 64, the compiled max_seq_len"),
        (["--generation-config", "other"], "--generation-config; given: other; allowed: auto, vllm"),
        (["--allowed-origins", "[oops"], "--allowed-origins; given: [oops"),
    ],
)
def test_more_than_was_compiled_is_refused(artifact: Path, options: list[str], expected: str) -> None:
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
