"""Writes the manifest's JSON Schema where it is published; a test fails while the two differ."""

from __future__ import annotations

from llmpack.artifact.schema import SCHEMA_PATH, encode_schema

SCHEMA_PATH.write_bytes(encode_schema())
print(f"wrote {SCHEMA_PATH}")
