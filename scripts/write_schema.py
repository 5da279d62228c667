"""Writes the JSON Schemas where they are published; tests fail while they differ from the types."""

from __future__ import annotations

from llmpack.artifact import schema as manifest_schema
from llmpack.bench import schema as report_schema

for module in (manifest_schema, report_schema):
    module.SCHEMA_PATH.write_bytes(manifest_schema.encode_schema(module.build_schema()))
    print(f"wrote {module.SCHEMA_PATH}")
