"""Content hashes of files, computed in parallel because hashlib releases the interpreter lock."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_MAX_THREADS = 8


def hash_bytes(data: bytes) -> str:
    """Lower-case hex sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def hash_file(path: Path, *, sync: bool = False) -> str:
    """Lower-case hex sha256 of a file's content, read in pieces.

    Args:
        path: The file.
        sync: Also wait until the content is on the disk.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if sync:
            os.fsync(stream.fileno())
    return digest


def hash_files(paths: Iterable[Path], *, sync: bool = False) -> list[str]:
    """Digests in the order of `paths`; several files are read at a time."""
    num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(lambda path: hash_file(path, sync=sync), paths))
