"""What this process takes, and giving it back."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys


def peak_memory_bytes() -> int:
    """Returns the largest resident size of this process so far, mapped files included.

    `ru_maxrss` counts KiB on Linux and bytes on macOS (getrusage manual pages).
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def release_memory() -> None:
    """Frees unreachable objects and hands freed heap pages back to the system.

    transformers' modules refer to each other, so their weights wait for the collector; glibc then keeps the freed
    pages of mid-sized tensors unless it is told to trim.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
