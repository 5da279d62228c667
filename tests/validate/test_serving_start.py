"""The same rules when a server starts, and from Python."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llmpack.errors import ValidationFailed
from llmpack.validate.run import adopt_compiled, check_serving, require_serving, validate_paths, validate_settings
from tests.artifact.samples import make_draft
from tests.validate.foreign_artifacts import write_rbln

MANIFEST = msgspec.structs.replace(make_draft(), max_seq_len=4096, batch_size=4, prefill_buckets=[32, 512])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_seqs": 4, "max_model_len": 4096},
        {"max_num_seqs": 1, "max_model_len": 100, "block_size": 100},
        {"max_num_seqs": None, "device": "cpu", "max_num_batched_tokens": 512},
    ],
)
def test_what_fits_may_start(settings: dict[str, int | str | None]) -> None:
    assert check_serving(MANIFEST, settings) == ()
    require_serving(MANIFEST, settings)
    assert adopt_compiled(MANIFEST, settings) == (settings, [])


@pytest.mark.parametrize(
    ("settings", "rule", "adopted"),
    [
        ({"max_num_seqs": 5}, "LP101", {"max_num_seqs": 4}),
        ({"max_model_len": 5000}, "LP102", {"max_model_len": 4096}),
        ({"max_num_batched_tokens": 100}, "LP103", {"max_num_batched_tokens": 512}),
        ({"block_size": 16}, "LP104", {"block_size": 4096}),
        ({"tensor_parallel_size": 2}, "LP107", {"tensor_parallel_size": 1}),
        ({"dtype": "bfloat16"}, "LP109", {"dtype": "float32"}),
        ({"max_num_seqs": "4"}, "LP110", {"max_num_seqs": 4}),
    ],
)
def test_what_does_not_fit_is_refused_and_can_be_adopted(
    settings: dict[str, int | str], rule: str, adopted: dict[str, int | str]
) -> None:
    with pytest.raises(ValidationFailed, match=f"{rule} {next(iter(settings))}.*--adopt"):
        require_serving(MANIFEST, settings)
    taken, sentences = adopt_compiled(MANIFEST, settings)
    assert taken == adopted
    assert len(sentences) == 1
    assert "replaced by the compiled" in sentences[0]
    require_serving(MANIFEST, taken)


def test_what_cannot_be_adopted_is_refused() -> None:
    with pytest.raises(ValidationFailed, match="LP110"):
        adopt_compiled(MANIFEST, {"no_such_key": 1})


def test_keyword_arguments_of_the_tutorial(tmp_path: Path) -> None:
    artifact = write_rbln(tmp_path)
    settings = {
        "model": "meta-llama/Llama-2-7b-chat-hf",
        "device": "rbln",
        "max_num_seqs": 4,
        "max_num_batched_tokens": 4096,
        "max_model_len": 4096,
        "block_size": 4096,
        "compiled_model_dir": str(artifact),
    }
    assert validate_settings(settings, artifact, "vllm-rbln").findings == ()
    wrong = validate_settings({**settings, "block_size": 16}, artifact, "vllm-rbln")
    assert [(finding.rule_id, finding.location.pointer) for finding in wrong.findings] == [("LP104", "block_size")]


def test_the_artifact_of_llmpack_serve_is_no_key(tmp_path: Path) -> None:
    """`llmpack serve DIR`: the positional has no flag to be known by."""
    script = tmp_path / "serve.sh"
    script.write_text("llmpack serve /srv/model --max-num-seqs 2\n")
    report = validate_paths([script])
    assert "LP110" not in {finding.rule_id for finding in report.findings}
