"""Reads and checks the header of one safetensors file.

Source: the format description in the README of huggingface/safetensors 0.8: eight bytes of little-endian header
length, a JSON object of tensors, then the data, which the tensors cover without holes or overlaps.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmpack.checkpoint.weights import TensorInfo, numpy_dtype

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library itself

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
# Formats that safetensors knows and that hold quantised or complex values.
_UNSUPPORTED = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4", "C64"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and where its bytes lie.

    Attributes:
        path: The file.
        start: First byte, counted from the beginning of the file.
        info: Dtype and shape.
    """

    path: Path
    start: int
    info: TensorInfo

    @property
    def end(self) -> int:
        """First byte after the tensor."""
        return self.start + self.info.num_bytes


@dataclass(frozen=True)
class Header:
    """One file's tensors and everything that is wrong with it.

    Attributes:
        tensors: The sound tensors by name.
        problems: A sentence for each defect, naming file and tensor.
        unsupported: Name -> dtype of tensors in formats that llmpack does not read.
    """

    tensors: dict[str, StoredTensor]
    problems: list[str]
    unsupported: dict[str, str]


class _Defect(Exception):
    """One sentence about a file or tensor that cannot be used."""


def read_header(path: Path) -> Header:
    """The checked header of `path`; defects are returned, not raised, so that all files report together."""
    header = Header({}, [], {})
    file_bytes = path.stat().st_size
    try:
        entries, data_start = _read_entries(path, file_bytes)
    except _Defect as defect:
        header.problems.append(f"{path.name}: {defect}")
        return header
    for name, entry in entries.items():
        try:
            _add_tensor(header, path, name, _Entry.parse(entry, data_start))
        except _Defect as defect:
            header.problems.append(f"{path.name}: tensor {name!r} {defect}")
    if not header.problems and not header.unsupported:
        header.problems.extend(_check_layout(header.tensors, path, data_start, file_bytes))
    return header


def _read_entries(path: Path, file_bytes: int) -> tuple[dict[str, Any], int]:
    if file_bytes < _LENGTH_BYTES:
        raise _Defect(f"has {file_bytes} bytes; too short to be a safetensors file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > _MAX_HEADER_BYTES:
            raise _Defect(f"claims a header of {length} bytes; it is not a safetensors file")
        if _LENGTH_BYTES + length > file_bytes:
            raise _Defect(f"is truncated: the header needs {_LENGTH_BYTES + length} bytes, the file has {file_bytes}")
        raw = file.read(length)
    try:
        entries = json.loads(raw, object_pairs_hook=_unique_keys)
    except ValueError as error:  # JSON and UTF-8 errors are both ValueErrors
        raise _Defect(f"has an unreadable header ({error})") from None
    if not isinstance(entries, dict):
        raise _Defect("has a header that is not a JSON object")
    entries.pop("__metadata__", None)
    return entries, _LENGTH_BYTES + length


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{', '.join(twice)} stands there twice")
    return dict(pairs)


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int

    @classmethod
    def parse(cls, entry: Any, data_start: int) -> _Entry:
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise _Defect("lacks dtype, shape or data_offsets") from None
        numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
        if not isinstance(dtype, str) or not all(type(number) is int and number >= 0 for number in numbers):
            raise _Defect(f"has an unusable dtype, shape or data_offsets ({entry!r})")
        if end < begin:
            raise _Defect(f"ends (at {end}) before it begins (at {begin})")
        return cls(dtype, tuple(shape), data_start + begin, end - begin)


def _add_tensor(header: Header, path: Path, name: str, entry: _Entry) -> None:
    if entry.dtype in _UNSUPPORTED:
        header.unsupported[name] = entry.dtype
        return
    if entry.dtype not in _DTYPES:
        raise _Defect(f"has the unknown dtype {entry.dtype!r}")
    info = TensorInfo(_DTYPES[entry.dtype], entry.shape)
    needed = math.prod(entry.shape) * numpy_dtype(info.dtype).itemsize
    if needed != entry.num_bytes:
        shape = list(entry.shape)
        raise _Defect(f"spans {entry.num_bytes} bytes, but {entry.dtype} {shape} needs {needed}")
    header.tensors[name] = StoredTensor(path, entry.start, info)


def _check_layout(tensors: dict[str, StoredTensor], path: Path, data_start: int, file_bytes: int) -> list[str]:
    problems = []
    position, previous = data_start, "the header"
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start < position:
            problems.append(f"{path.name}: tensor {name!r} overlaps {previous}")
        elif tensor.start > position:
            problems.append(f"{path.name}: {tensor.start - position} unclaimed bytes before tensor {name!r}")
        if tensor.end > file_bytes:
            problems.append(
                f"{path.name}: tensor {name!r} ends at byte {tensor.end}, the file has {file_bytes} (truncated?)"
            )
        position, previous = max(position, tensor.end), f"tensor {name!r}"
    if file_bytes > position:
        problems.append(f"{path.name}: {file_bytes - position} bytes follow the last tensor")
    return problems
