"""The published JSON Schema is the one that the types give, and real manifests satisfy it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmpack.artifact.schema import SCHEMA_PATH, build_schema, encode_schema


@pytest.fixture
def facts(artifact: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((artifact / "llmpack.json").read_bytes())
    return loaded


def test_published_schema_is_up_to_date() -> None:
    assert SCHEMA_PATH.read_bytes() == encode_schema(build_schema()), "run scripts/write_schema.py"


def test_schema_is_a_schema_and_accepts_a_real_manifest(facts: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(build_schema())
    jsonschema.validate(facts, build_schema())


@pytest.mark.parametrize("change", [{"extra": 1}, {"batch_size": "4"}, {"files": None}, {"engine": "tensorrt"}])
def test_schema_refuses_what_the_decoder_refuses(facts: dict[str, Any], change: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**facts, **change}, build_schema())


def test_documented_fields_are_described_in_the_schema() -> None:
    definitions = build_schema()["$defs"]
    assert definitions["Manifest"]["properties"]["max_seq_len"]["description"].startswith("Tokens of a slot")
    assert "in logits" not in json.dumps(definitions["Program"]["description"])
    assert all(definition["description"] for definition in definitions.values())
