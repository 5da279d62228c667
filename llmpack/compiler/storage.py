"""In which form each parameter is stored: dtype, and for inductor the packed form that products read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from llmpack.architectures.weights import EMBEDDING, Parameter
from llmpack.artifact.library_program import PACKED_ROWS, packed_name
from llmpack.artifact.manifest import DtypeName
from llmpack.checkpoint.weights import WeightSource, numpy_dtype
from llmpack.plan.plan import CompilePlan

Array = npt.NDArray[Any]

_LOOKED_UP = (EMBEDDING, "positions.weight")  # Tables whose rows are read, not multiplied.


@dataclass(frozen=True, slots=True)
class StoredForm:
    """A parameter as it lies in the weights file; one that is both looked up and multiplied has two forms.

    Attributes:
        parameter: What it is.
        dtype: Of its numbers.
        packed: Whether its rows lie tile by tile (`pack_tiles`).
    """

    parameter: Parameter
    dtype: DtypeName
    packed: bool

    @property
    def name(self) -> str:
        """Name in the weights file."""
        return packed_name(self.parameter.name) if self.packed else self.parameter.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the weights file."""
        if not self.packed:
            return self.parameter.shape
        rows, columns = self.parameter.shape
        return -(-rows // PACKED_ROWS), columns, PACKED_ROWS


def find_dtype(source: WeightSource) -> str:
    """Returns the dtype of a checkpoint: that of most of its bytes."""
    sizes: Counter[str] = Counter()
    for info in map(source.info, source.names()):
        sizes[info.dtype] += info.num_bytes
    return max(sizes, key=sizes.__getitem__)


def list_forms(parameters: Sequence[Parameter], plan: CompilePlan, *, tied: bool) -> list[StoredForm]:
    """Returns what the plan's programs read, in the order in which it is stored."""
    if plan.engine == "onnxruntime":
        return [StoredForm(parameter, "float32", packed=False) for parameter in parameters]
    forms = []
    for parameter in parameters:
        matrix = len(parameter.shape) == 2
        if not matrix or parameter.name in _LOOKED_UP:
            forms.append(StoredForm(parameter, plan.dtype if matrix else "float32", packed=False))
        if matrix and (parameter.name not in _LOOKED_UP or (tied and parameter.name == EMBEDDING)):
            forms.append(StoredForm(parameter, plan.dtype, packed=True))
    return forms


def store(form: StoredForm, chunks: Iterable[Array]) -> Iterator[Array]:
    """Yields the numbers of a form in file order, given the parameter's rows chunk by chunk."""
    dtype = numpy_dtype(form.dtype)
    if not form.packed:
        yield from (chunk.astype(dtype, copy=False) for chunk in chunks)
        return
    rest = np.empty((0, form.parameter.shape[1]), dtype)
    for chunk in chunks:
        rows = np.concatenate([rest, chunk.astype(dtype, copy=False)])
        whole = len(rows) // PACKED_ROWS * PACKED_ROWS
        yield pack_tiles(rows[:whole])
        rest = rows[whole:]
    if len(rest):
        yield pack_tiles(np.pad(rest, ((0, -len(rest) % PACKED_ROWS), (0, 0))))


def pack_tiles(rows: Array) -> Array:
    """[N, K] -> [N / 32, K, 32], each tile transposed so that 32 products advance together.

    Two-byte numbers lie in pairs along K, [N / 32, K / 2, 32, 2], as the dot-product instructions take them.

    Source: torch 2.13 `CppGemmTemplate.block_weight` and `pack_vnni_weight`.
    """
    count, columns = rows.shape
    tiles = rows.reshape(count // PACKED_ROWS, PACKED_ROWS, columns)
    if rows.dtype.itemsize == 2:
        pairs = tiles.reshape(count // PACKED_ROWS, PACKED_ROWS, columns // 2, 2)
        return pairs.transpose(0, 2, 1, 3)
    return tiles.transpose(0, 2, 1)
