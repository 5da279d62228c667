"""The artifact's one weights file: a safetensors file that programs point into and runners map into memory.

Layout (safetensors 0.x): 8 bytes of header length, a JSON header padded with spaces so that data starts on a multiple
of 64 bytes, then the tensors back to back.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from llmpack.artifact.consistency import ITEM_BYTES
from llmpack.artifact.manifest import DtypeName
from llmpack.errors import ManifestError

WEIGHTS_PATH = "weights/model.safetensors"
_ALIGNMENT = 64
# safetensors' names of dtypes.
_DTYPES: dict[str, DtypeName] = {"F32": "float32", "BF16": "bfloat16"}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and where it lies; `offset` counts bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    offset: int
    dtype: DtypeName

    @property
    def size_bytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def lay_out(tensors: Sequence[tuple[str, tuple[int, ...], DtypeName]]) -> tuple[bytes, dict[str, StoredTensor]]:
    """Returns the file's head (length and header) and where each (name, shape, dtype) will lie, in the given order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape, dtype in tensors:
        size = math.prod(shape) * ITEM_BYTES[dtype]
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    head = struct.pack("<Q", len(text)) + text
    stored = {
        name: StoredTensor(name, tuple(shape), len(head) + header[name]["data_offsets"][0], dtype)
        for name, shape, dtype in tensors
    }
    return head, stored


class WeightsWriter:
    """Writes tensors piece by piece in the order of the layout, holding none of them."""

    def __init__(self, stream: BinaryIO, stored: dict[str, StoredTensor]) -> None:
        self._stream = stream
        self._remaining = {name: tensor.size_bytes for name, tensor in stored.items()}

    def write(self, name: str, piece: npt.NDArray[Any]) -> None:
        """Appends numbers to tensor `name`, in its dtype; pieces of one tensor must follow each other."""
        data = np.ascontiguousarray(piece)
        self._remaining[name] -= data.nbytes
        assert self._remaining[name] >= 0, f"{name} is larger than its place"
        self._stream.write(data.view(np.uint8).data)

    def check_complete(self) -> None:
        """Asserts that every byte of the layout was written."""
        assert not any(self._remaining.values()), "a tensor was not fully written"


@contextmanager
def open_weights_writer(path: Path, head: bytes, stored: dict[str, StoredTensor]) -> Iterator[WeightsWriter]:
    """Yields a writer; the file is complete when the block ends without an error."""
    with path.open("wb") as stream:
        stream.write(head)
        writer = WeightsWriter(stream, stored)
        yield writer
        writer.check_complete()


def map_weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Returns every float32 tensor as a read-only view on one memory map of the file; no bytes are copied.

    Raises:
        ManifestError: The file is not such a file.
    """
    stored = read_layout(path)
    with path.open("rb") as stream:
        mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    return {name: _view(mapped, tensor) for name, tensor in stored.items() if tensor.dtype == "float32"}


def read_layout(path: Path) -> dict[str, StoredTensor]:
    """Returns where each tensor lies; reads the header alone.

    Raises:
        ManifestError: The file is not such a file.
    """
    try:
        with path.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header = json.loads(stream.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise ManifestError("the weights file cannot be read", where=str(path), given=str(error)) from error
    header.pop("__metadata__", None)
    return {
        name: StoredTensor(name, tuple(entry["shape"]), 8 + length + entry["data_offsets"][0], _DTYPES[entry["dtype"]])
        for name, entry in header.items()
    }


def _view(mapped: memoryview, tensor: StoredTensor) -> npt.NDArray[np.float32]:
    return np.frombuffer(mapped[tensor.offset : tensor.offset + tensor.size_bytes], np.float32).reshape(tensor.shape)
