"""Reads the JSON files of a checkpoint, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmpack.errors import CorruptCheckpoint


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`.

    Raises:
        CorruptCheckpoint: The file is not UTF-8, not JSON or not an object.
    """
    return parse_json(path.read_bytes(), str(path))


def parse_json(content: bytes, where: str) -> dict[str, Any]:
    """The object in `content`; `where` names it in the error.

    Raises:
        CorruptCheckpoint: The content is not UTF-8, not JSON or not an object.
    """
    try:
        value = json.loads(content)
    except ValueError as error:
        raise CorruptCheckpoint(f"not readable as JSON ({error})", where=where) from None
    if not isinstance(value, dict):
        raise CorruptCheckpoint("not a JSON object", where=where, given=value)
    return value
