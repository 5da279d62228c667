"""Writes small checkpoints by hand, so that a test can break exactly one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = {"model_type": "llama", "vocab_size": 8, "bos_token_id": 1, "eos_token_id": 2}
DATA = bytes(range(24))
# Two float32 [2] and one float16 [4]: 8 bytes each.
ENTRIES: dict[str, dict[str, Any]] = {
    "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
    "c": {"dtype": "F16", "shape": [4], "data_offsets": [16, 24]},
}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_safetensors(path: Path, entries: dict[str, Any] | bytes = ENTRIES, data: bytes = DATA) -> None:
    """A file with this header (an object, or raw bytes) and this data."""
    header = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def entries_except(name: str, **changes: Any) -> dict[str, Any]:
    """ENTRIES with some fields of one tensor changed."""
    return ENTRIES | {name: ENTRIES[name] | changes}


def one_tensor(name: str) -> dict[str, Any]:
    return {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def write_single(directory: Path) -> Path:
    """A sound checkpoint with one weights file."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", CONFIG)
    write_safetensors(directory / "model.safetensors")
    return directory


def write_sharded(directory: Path) -> Path:
    """A sound checkpoint with tensors a and b in two shards."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", CONFIG)
    write_safetensors(directory / "one.safetensors", one_tensor("a"), DATA[:8])
    write_safetensors(directory / "two.safetensors", one_tensor("b"), DATA[8:16])
    write_index(directory, {"a": "one.safetensors", "b": "two.safetensors"})
    return directory


def write_index(directory: Path, weight_map: dict[str, str]) -> None:
    write_json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
