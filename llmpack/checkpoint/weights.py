"""What every source of weights offers: names and shapes at once, one tensor at a time on demand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a tensor is, without its data.

    Attributes:
        dtype: NumPy's name of the dtype that `read` returns, such as `float32` or `bfloat16`.
        shape: As Hugging Face has it, outermost dimension first.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Product of the shape; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Size of the array that `read` returns."""
        return self.num_elements * numpy_dtype(self.dtype).itemsize


class WeightSource(Protocol):
    """The tensors of a checkpoint under Hugging Face's names."""

    @property
    def total_bytes(self) -> int:
        """Size of all tensors as `read` returns them."""
        ...

    def names(self) -> list[str]:
        """All tensor names, sorted."""
        ...

    def info(self, name: str) -> TensorInfo:
        """Dtype and shape of one tensor; reads no data.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        ...

    def read(self, name: str) -> Tensor:
        """One tensor in its own dtype. May be a read-only view of the file, which is unmapped with the array.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        ...


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`; bfloat16, which NumPy lacks, is the one of ml_dtypes."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)
