"""Other tools' JSON files: read with a size limit, values taken only when they have the expected type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmpack.errors import ArtifactError

MAX_BYTES = 16 << 20


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`.

    Raises:
        ArtifactError: The file is missing, larger than 16 MiB, nested too deeply or no JSON object.
    """
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ArtifactError("too large for a configuration", where=str(file), allowed=f"{MAX_BYTES} bytes")
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(f"cannot be read ({error.strerror})", where=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"not valid JSON ({error or 'nested too deeply'})", where=str(file)) from error
    if not isinstance(found, dict):
        raise ArtifactError("not a JSON object", where=str(file))
    return found


def read_object_if_there(file: Path) -> dict[str, Any]:
    """As `read_object`; an empty mapping when there is no such file.

    Raises:
        ArtifactError: The file exists and cannot be used.
    """
    return read_object(file) if file.is_file() else {}


def int_at(values: Mapping[str, Any], *path: str) -> int | None:
    """The positive integer at a path of keys, or None."""
    found = value_at(values, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def str_at(values: Mapping[str, Any], *path: str) -> str | None:
    """The non-empty string at a path of keys, or None."""
    found = value_at(values, *path)
    return found if isinstance(found, str) and found else None


def table_at(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path of keys; empty when there is none."""
    found = value_at(values, *path)
    return found if isinstance(found, Mapping) else {}


def ids_at(values: Mapping[str, Any], *path: str) -> tuple[int, ...] | None:
    """The ids at a path of keys, where one id may stand alone; None when there are none."""
    found = value_at(values, *path)
    items = found if isinstance(found, list) else [found]
    ids = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    return tuple(sorted(set(ids))) or None


def value_at(values: Mapping[str, Any], *path: str) -> Any:
    """Whatever is at a path of keys, or None."""
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def plain_dtype(name: str | None) -> str | None:
    """`torch.float16`, `fp16` and `half` as `float16`; other spellings as they are, in lower case."""
    if name is None:
        return None
    short = name.lower().removeprefix("torch.")
    return {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}.get(
        short, short
    )
