"""The JSON Schema of the manifest, made from its types; published beside this module."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import msgspec

from llmpack.artifact import manifest as manifest_module
from llmpack.artifact.manifest import Manifest

SCHEMA_PATH = Path(__file__).with_name("manifest.schema.json")


def build_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) that accepts exactly the shapes that the strict decoder accepts.

    Relations between fields (`artifact/consistency.py`) cannot be said in it.
    """
    (root,), components = msgspec.json.schema_components([Manifest], ref_template="#/$defs/{name}")
    for name, component in components.items():
        _describe(component, getattr(manifest_module, name))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llmpack artifact manifest (llmpack.json)",
        **root,
        "$defs": components,
    }


def encode_schema() -> bytes:
    """The bytes of `manifest.schema.json`."""
    return msgspec.json.format(msgspec.json.encode(build_schema()), indent=2) + b"\n"


def _describe(component: dict[str, Any], owner: type) -> None:
    """Moves the docstring's summary and its `Attributes:` lines to where a schema keeps them."""
    summary, _, attributes = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:")
    component["description"] = _one_line(summary)
    for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, flags=re.MULTILINE):
        field = component["properties"][name]
        component["properties"][name] = {**field, "description": _one_line(text)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
