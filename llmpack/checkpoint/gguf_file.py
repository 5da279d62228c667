"""Reads a .gguf file's metadata and tensor table; tensor data stays in the file.

Source: ggml's docs/gguf.md, versions 2 and 3. The reader is ours because it names what is truncated and takes a
tenth of a second for a vocabulary of 128k, where the published reader takes many.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmpack.checkpoint.defects import corrupt_checkpoint
from llmpack.errors import CorruptCheckpoint, UnsupportedArchitecture

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as it is stored.

    Attributes:
        type_id: ggml's number of the format (0 is F32).
        shape: Outermost dimension first, in elements.
        start: First byte, counted from the beginning of the file.
        num_bytes: Size as stored.
    """

    type_id: int
    shape: tuple[int, ...]
    start: int
    num_bytes: int


@dataclass(frozen=True)
class GgufFile:
    """Metadata by key and tensors by name, as the file has them."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path, block_sizes: dict[int, tuple[int, int]]) -> GgufFile:
    """The checked table of contents of `path`.

    Args:
        path: The file.
        block_sizes: For each ggml format, elements and bytes per block.

    Raises:
        CorruptCheckpoint: Not a gguf file, truncated, or with overlapping tensors.
        UnsupportedArchitecture: A version or tensor format that is not known.
    """
    file_bytes = path.stat().st_size
    if file_bytes < 24:
        raise CorruptCheckpoint(f"the file has {file_bytes} bytes; too short to be gguf", where=str(path))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data, path)
        num_tensors, num_keys = _read_preamble(cursor)
        metadata = dict(_read_key(cursor) for _ in range(num_keys))
        if metadata.get("split.count", 1) > 1:
            raise UnsupportedArchitecture(
                "the model is split over several .gguf files",
                where=str(path),
                next_step="Merge them first: llama-gguf-split --merge FIRST_PART.gguf WHOLE.gguf",
            )
        entries = [_read_tensor_entry(cursor) for _ in range(num_tensors)]
        alignment = _read_alignment(metadata, cursor)
        data_start = math.ceil(cursor.position / alignment) * alignment
    tensors = {entry.name: _place(entry, data_start, block_sizes, path) for entry in entries}
    problems = [f"tensor {name!r} stands there twice" for name in _find_twice(entries)]
    problems += _check_extents(tensors, file_bytes)
    if problems:
        raise corrupt_checkpoint(str(path), problems)
    return GgufFile(path, metadata, tensors)


class _Cursor:
    """Reads values one after the other and says what was being read when the file ends too early."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self.position = 0
        self.subject = "the preamble"

    def take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > len(self._data):
            raise self.corrupt(f"the file is truncated: it ends (at byte {len(self._data)}) within {self.subject}")
        chunk = self._data[self.position : end]
        self.position = end
        return chunk

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        raw = self.take(self.number("Q"))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.corrupt(f"text that is not UTF-8 within {self.subject}") from None

    def corrupt(self, what: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(what, where=str(self._path), next_step="Download the file again.")


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    if cursor.take(4) != _MAGIC:
        raise cursor.corrupt("not a gguf file (it does not begin with GGUF)")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise UnsupportedArchitecture(
            "unknown gguf version (or a big-endian file)", given=version, allowed=" or ".join(map(str, _VERSIONS))
        )
    return cursor.number("Q"), cursor.number("Q")


def _read_key(cursor: _Cursor) -> tuple[str, Any]:
    cursor.subject = "a metadata key"
    key = cursor.text()
    cursor.subject = f"metadata {key!r}"
    return key, _read_value(cursor, cursor.number("I"))


def _read_value(cursor: _Cursor, type_id: int) -> Any:
    if type_id == _STRING:
        return cursor.text()
    if type_id == _ARRAY:
        return _read_array(cursor)
    return _read_scalars(cursor, type_id, 1)[0]


def _read_array(cursor: _Cursor) -> list[Any]:
    type_id, count = cursor.number("I"), cursor.number("Q")
    if type_id == _STRING:
        return [cursor.text() for _ in range(count)]
    return _read_scalars(cursor, type_id, count)  # arrays of arrays exist only on paper


def _read_scalars(cursor: _Cursor, type_id: int, count: int) -> list[Any]:
    if type_id not in _SCALARS:
        raise cursor.corrupt(f"unknown value type {type_id} within {cursor.subject}")
    dtype = np.dtype(_SCALARS[type_id])
    values: list[Any] = np.frombuffer(cursor.take(count * dtype.itemsize), dtype).tolist()
    return values


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _read_tensor_entry(cursor: _Cursor) -> _TensorEntry:
    cursor.subject = "the tensor table"
    name = cursor.text()
    cursor.subject = f"the table entry of tensor {name!r}"
    num_dimensions = cursor.number("I")
    if num_dimensions > _MAX_DIMENSIONS:
        raise cursor.corrupt(f"tensor {name!r} claims {num_dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(num_dimensions))
    return _TensorEntry(name, shape[::-1], cursor.number("I"), cursor.number("Q"))  # ggml: innermost first


def _place(entry: _TensorEntry, data_start: int, block_sizes: dict[int, tuple[int, int]], path: Path) -> GgufTensor:
    if entry.type_id not in block_sizes:
        raise UnsupportedArchitecture(
            f"tensor {entry.name!r} is stored in an unknown format",
            where=str(path),
            given=entry.type_id,
            next_step="A newer gguf package may know it, or use another quantisation of the model.",
        )
    elements, block_bytes = block_sizes[entry.type_id]
    num_bytes = math.prod(entry.shape) // elements * block_bytes
    return GgufTensor(entry.type_id, entry.shape, data_start + entry.offset, num_bytes)


def _read_alignment(metadata: dict[str, Any], cursor: _Cursor) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise cursor.corrupt(f"general.alignment is {alignment!r}")
    return alignment


def _find_twice(entries: list[_TensorEntry]) -> list[str]:
    return [name for name, count in Counter(entry.name for entry in entries).items() if count > 1]


def _check_extents(tensors: dict[str, GgufTensor], file_bytes: int) -> list[str]:
    problems = []
    position, previous = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        end = tensor.start + tensor.num_bytes
        if tensor.num_bytes == 0:
            problems.append(f"tensor {name!r} is empty")
        if tensor.start < position:
            problems.append(f"tensor {name!r} overlaps tensor {previous!r}")
        if end > file_bytes:
            problems.append(f"tensor {name!r} ends at byte {end}, the file has {file_bytes} (truncated?)")
        position, previous = end, name
    return problems
