"""A manifest broken in exactly one way is refused with the way named."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmpack.artifact.identity import compute_build_id
from llmpack.artifact.manifest import Manifest
from llmpack.artifact.reader import read_manifest
from llmpack.errors import ManifestError
from tests.artifact.samples import write_sample


def edit(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edits the manifest and gives it a fitting build id where the edit leaves it decodable."""
    path = root / "llmpack.json"
    facts = json.loads(path.read_bytes())
    change(facts)
    with suppress(msgspec.ValidationError):
        facts["build_id"] = compute_build_id(msgspec.convert(facts, Manifest))
    path.write_text(json.dumps(facts))


def refusal(root: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        read_manifest(root)
    return str(caught.value)


def test_newer_schema_says_which_llmpack_to_use(artifact: Path) -> None:
    edit(
        artifact,
        lambda facts: facts.update(schema_version=2, a_new_key=1, toolchain={"llmpack": "3.1.0", "another": "1"}),
    )
    message = refusal(artifact)
    assert "newer than this llmpack" in message
    assert "pip install 'llmpack>=3.1.0'" in message
    assert "unknown field" not in message


@pytest.mark.parametrize("version", [None, "1", 0, -1, True, 1.0])
def test_schema_version_must_be_a_positive_integer(artifact: Path, version: object) -> None:
    edit(artifact, lambda facts: facts.update(schema_version=version))
    assert "schema_version" in refusal(artifact)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema_version": 1} trailing'])
def test_bad_json(artifact: Path, raw: bytes) -> None:
    (artifact / "llmpack.json").write_bytes(raw)
    assert str(artifact / "llmpack.json") in refusal(artifact)


def test_lfs_pointer(artifact: Path) -> None:
    (artifact / "llmpack.json").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git lfs pull" in refusal(artifact)


def test_missing_manifest(artifact: Path) -> None:
    (artifact / "llmpack.json").unlink()
    message = refusal(artifact)
    assert "no llmpack.json" in message
    assert "looks like a checkpoint" in message  # config.json lies there


UNKNOWN_KEYS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "top": (lambda facts: facts.update(max_seqlen=1), "max_seq_len"),
    "nested": (lambda facts: facts["kv_cache"].update(total_byte=1), "total_bytes"),
    "in a list": (lambda facts: facts["programs"][1].update(bukket=1), "bucket"),
    "in a list of a nested one": (lambda facts: facts["kv_cache"]["layers"][0].update(windows=1), "window"),
}


@pytest.mark.parametrize("place", UNKNOWN_KEYS)
def test_unknown_key_names_the_nearest(artifact: Path, place: str) -> None:
    change, nearest = UNKNOWN_KEYS[place]
    edit(artifact, change)
    assert f"nearest key: {nearest}" in refusal(artifact)


@pytest.mark.parametrize("key", ["batch_size", "build_id", "files", "measured"])
def test_missing_key_is_named(artifact: Path, key: str) -> None:
    edit_raw(artifact, lambda facts: facts.pop(key))
    assert f"`{key}`" in refusal(artifact)


def edit_raw(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((root / "llmpack.json").read_bytes())
    change(facts)
    (root / "llmpack.json").write_text(json.dumps(facts))


def test_edited_manifest_is_refused(artifact: Path) -> None:
    edit_raw(artifact, lambda facts: facts.update(hidden_size=49))
    assert "the manifest was edited" in refusal(artifact)


def test_measurements_are_not_part_of_the_build_id(artifact: Path) -> None:
    edit_raw(artifact, lambda facts: facts["measured"].update(compile_time_s=99.0))
    assert read_manifest(artifact).measured.compile_time_s == 99.0


CONTRADICTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "descending prefill": (lambda facts: facts.update(prefill_buckets=[32, 16]), "$.prefill_buckets"),
    "prefill beyond the slot": (lambda facts: facts.update(prefill_buckets=[65]), "in [1, 64]"),
    "last decode": (lambda facts: facts.update(decode_buckets=[1, 3]), "must end with batch_size 4"),
    "no decode": (lambda facts: facts.update(decode_buckets=[]), "$.decode_buckets"),
    "no program for a bucket": (lambda facts: facts["programs"].pop(1), "decode programs for [4]"),
    "program not listed": (lambda facts: facts["files"].remove(_record(facts, "decode-1")), "does not list"),
    "two programs of a name": (lambda facts: facts["programs"].append(facts["programs"][0]), "twice"),
    "symbolic dimension": (lambda facts: facts["programs"][0]["inputs"][0].update(shape=[-1, 32]), "must be positive"),
    "layers": (lambda facts: facts.update(num_hidden_layers=3), "num_hidden_layers is 3"),
    "window": (lambda facts: facts["kv_cache"]["layers"][0].update(window=8), "full with window 8"),
    "cache bytes": (lambda facts: facts["kv_cache"].update(total_bytes=1), "total_bytes is 1"),
    "unsorted eos": (lambda facts: facts["special_tokens"].update(eos_token_ids=[7, 2]), "ascending"),
    "zero slots": (lambda facts: facts.update(batch_size=0), "$.batch_size is 0"),
    "hash": (lambda facts: facts["files"][0].update(sha256="A" * 64), "lower-case hex"),
    "parent path": (lambda facts: facts["files"][0].update(path="../config.json"), "leaves the artifact"),
    "absolute path": (lambda facts: facts["files"][0].update(path="/etc/passwd"), "leaves the artifact"),
    "backslash path": (lambda facts: facts["files"][0].update(path="a\\b"), "forward slashes"),
    "roundabout path": (lambda facts: facts["files"][0].update(path="a/./b"), "not normalised"),
    "own path": (lambda facts: facts["files"][0].update(path="llmpack.json"), "the manifest itself"),
    "listed twice": (lambda facts: facts["files"].append(facts["files"][0]), "twice"),
}


def test_free_dimensions_are_those_of_logits_alone(artifact: Path) -> None:
    def append_free(facts: dict[str, Any], kind: str, dim: int) -> None:
        tensor = {"name": "input_ids", "dtype": "int64", "shape": [dim, dim]}
        program = {**facts["programs"][0], "name": "free", "kind": kind, "inputs": [tensor]}
        facts["programs"].append(program)

    for kind, dim in (("head", -1), ("logits", 0), ("logits", -2)):
        edit(artifact, lambda facts, kind=kind, dim=dim: append_free(facts, kind, dim))
        assert "must be positive" in refusal(artifact)
        edit(artifact, lambda facts: facts["programs"].pop())
    edit(artifact, lambda facts: append_free(facts, "logits", -1))
    assert read_manifest(artifact).programs[-1].inputs[0].shape == [-1, -1]


def _record(facts: dict[str, Any], part: str) -> object:
    return next(record for record in facts["files"] if part in record["path"])


@pytest.mark.parametrize("way", CONTRADICTIONS)
def test_contradiction_is_named(artifact: Path, way: str) -> None:
    change, expected = CONTRADICTIONS[way]
    edit(artifact, change)
    assert expected in refusal(artifact)


def test_all_contradictions_come_at_once(artifact: Path) -> None:
    edit(artifact, lambda facts: facts.update(decode_buckets=[1, 3], num_hidden_layers=3))
    message = refusal(artifact)
    assert "$.decode_buckets" in message
    assert "num_hidden_layers is 3" in message


def test_manifest_round_trips(tmp_path: Path) -> None:
    written = write_sample(tmp_path / "model")
    assert read_manifest(tmp_path / "model") == written
