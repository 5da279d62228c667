"""The files below the paths that a user gave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 16
MAX_ENTRIES = 200_000
_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to look at.

    Attributes:
        is_given: Whether the user named it, rather than a directory above it.
    """

    path: Path
    is_given: bool


@dataclass(frozen=True, slots=True)
class Unwalkable:
    """A path that cannot be looked into, and why."""

    path: Path
    message: str


def walk(path: Path) -> Iterator[FoundFile | Unwalkable]:
    """The file `path`, or every file below the directory `path` in the order of names.

    Links are followed, each directory once; deeper than `MAX_DEPTH` and past `MAX_ENTRIES` entries it stops and
    says so.
    """
    if not path.is_dir():
        if path.exists() or path.is_symlink():
            yield FoundFile(path, is_given=True)
        else:
            yield Unwalkable(path, "no such file or directory")
        return
    yield from _Walker().walk(path)


class _Walker:
    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._num_entries = 0

    def walk(self, root: Path) -> Iterator[FoundFile | Unwalkable]:
        waiting = [(root, 0)]
        while waiting:
            directory, depth = waiting.pop()
            if depth > MAX_DEPTH:
                yield Unwalkable(directory, f"deeper than {MAX_DEPTH} directories")
                continue
            try:
                files, directories = self._entries(directory)
            except OSError as error:
                yield Unwalkable(directory, f"the directory cannot be read: {error.strerror}")
                continue
            if self._num_entries > MAX_ENTRIES:
                yield Unwalkable(root, f"more than {MAX_ENTRIES} files; give directories further down")
                return
            yield from (FoundFile(path, is_given=False) for path in files)
            waiting += [(path, depth + 1) for path in reversed(directories)]

    def _entries(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """Files and directories in it, by name; nothing when it was seen before."""
        status = directory.stat()
        if (status.st_dev, status.st_ino) in self._seen:
            return [], []
        self._seen.add((status.st_dev, status.st_ino))
        files: list[Path] = []
        directories: list[Path] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                self._num_entries += 1
                if self._num_entries > MAX_ENTRIES:
                    break
                if not entry.is_dir():
                    files.append(directory / entry.name)
                elif entry.name not in _SKIPPED:
                    directories.append(directory / entry.name)
        return sorted(files), sorted(directories)
