"""JSON Schemas made from types; the manifest's is published beside this module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from llmpack.artifact import manifest as manifest_module
from llmpack.artifact.manifest import Manifest

SCHEMA_PATH = Path(__file__).with_name("manifest.schema.json")


def build_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) that accepts exactly the shapes that the strict decoder accepts.

    Relations between fields (`artifact/consistency.py`) cannot be said in it.
    """
    return describe_type(Manifest, "llmpack artifact manifest (llmpack.json)", (manifest_module,))


def describe_type(root: type, title: str, modules: Sequence[ModuleType]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a struct, with the docstrings of all structs in it.

    Args:
        root: The struct of the whole document.
        title: Of the schema.
        modules: Where the structs are defined.
    """
    (reference,), components = msgspec.json.schema_components([root], ref_template="#/$defs/{name}")
    for name, component in components.items():
        _describe(component, next(getattr(module, name) for module in modules if hasattr(module, name)))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **reference,
        "$defs": components,
    }


def encode_schema(schema: dict[str, Any]) -> bytes:
    """The bytes of a published schema."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _describe(component: dict[str, Any], owner: type) -> None:
    """Moves the docstring's summary and its `Attributes:` lines to where a schema keeps them."""
    summary, _, attributes = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:")
    component["description"] = _one_line(summary)
    for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, flags=re.MULTILINE):
        field = component["properties"][name]
        component["properties"][name] = {**field, "description": _one_line(text)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
