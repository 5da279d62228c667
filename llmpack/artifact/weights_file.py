"""The artifact's one weights file: a safetensors file that programs point into and runners map into memory.

Layout (safetensors 0.x): 8 bytes of header length, a JSON header padded with spaces so that data starts on a multiple
of 64 bytes, then the tensors back to back.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from llmpack.errors import ManifestError

WEIGHTS_PATH = "weights/model.safetensors"
_ALIGNMENT = 64
_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A float32 tensor and where it lies; `offset` counts bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the data."""
        return int(np.prod(self.shape, dtype=np.int64)) * _ITEM_BYTES


def lay_out(tensors: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[bytes, dict[str, StoredTensor]]:
    """Returns the file's head (length and header) and where each tensor will lie, in the given order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in tensors:
        size = int(np.prod(shape, dtype=np.int64)) * _ITEM_BYTES
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    head = struct.pack("<Q", len(text)) + text
    stored = {
        name: StoredTensor(name, tuple(shape), len(head) + header[name]["data_offsets"][0]) for name, shape in tensors
    }
    return head, stored


class WeightsWriter:
    """Writes tensors piece by piece in the order of the layout, holding none of them."""

    def __init__(self, stream: BinaryIO, stored: dict[str, StoredTensor]) -> None:
        self._stream = stream
        self._remaining = {name: tensor.size_bytes for name, tensor in stored.items()}

    def write(self, name: str, piece: npt.NDArray[np.float32]) -> None:
        """Appends rows of tensor `name`; pieces of one tensor must follow each other."""
        data = np.ascontiguousarray(piece, dtype=np.float32)
        self._remaining[name] -= data.nbytes
        assert self._remaining[name] >= 0, f"{name} is larger than its place"
        self._stream.write(data.data.cast("B"))

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
    """Returns every tensor as a read-only view on one memory map of the file; no bytes are copied.

    Raises:
        ManifestError: The file is not such a file.
    """
    try:
        with path.open("rb") as stream:
            mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        length = struct.unpack("<Q", mapped[:8])[0]
        header = json.loads(bytes(mapped[8 : 8 + length]))
    except (OSError, ValueError, struct.error) as error:
        raise ManifestError("the weights file cannot be read", where=str(path), given=str(error)) from error
    header.pop("__metadata__", None)
    return {name: _view(mapped, 8 + length, entry) for name, entry in header.items()}


def _view(mapped: memoryview, start: int, entry: dict[str, Any]) -> npt.NDArray[np.float32]:
    begin, end = entry["data_offsets"]
    return np.frombuffer(mapped[start + begin : start + end], dtype=np.float32).reshape(entry["shape"])
