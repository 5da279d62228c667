"""Whether the files of an artifact are those that its manifest lists."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from llmpack.artifact.hashing import hash_files
from llmpack.artifact.manifest import MANIFEST_NAME, FileRecord, Manifest

Verify = Literal["full", "sizes"]

# Source: Git LFS specification, "The Pointer": the first line of a pointer file, which is under 1024 bytes.
_LFS_FIRST_LINE = b"version https://git-lfs.github.com/spec/v1"
_LFS_MAX_BYTES = 1024


def find_file_problems(root: Path, manifest: Manifest, verify: Verify = "full") -> list[str]:
    """One sentence per file of `root` that is missing, extra or altered, by path.

    Args:
        root: The artifact.
        manifest: Its manifest, already found free of contradictions.
        verify: "full" reads every byte (about a second per gigabyte and core); "sizes" reads none and so misses
            changes that keep a file's size.
    """
    present = list_entries(root)
    listed = {record.path: record for record in manifest.files}
    problems = dict.fromkeys(listed.keys() - present.keys(), "missing")
    problems |= dict.fromkeys(present.keys() - listed.keys(), "not listed in the manifest")
    for path in listed.keys() & present.keys():
        problem = _find_shape_problem(root / path, present[path], listed[path])
        if problem is not None:
            problems[path] = problem
    if verify == "full":
        intact = [record for path, record in listed.items() if path not in problems]
        problems |= dict(_content_problems(root, intact))
    return [f"{path}: {problems[path]}" for path in sorted(problems)]


def list_entries(root: Path) -> dict[str, os.stat_result]:
    """Every entry below `root` that is no directory, with its own status (links are not followed).

    The manifest is left out, unless it is a link.
    """
    entries: dict[str, os.stat_result] = {}
    for folder, folder_names, file_names in os.walk(root):
        for name in (*folder_names, *file_names):
            path = Path(folder, name)
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                entries[path.relative_to(root).as_posix()] = status
    if MANIFEST_NAME in entries and stat.S_ISREG(entries[MANIFEST_NAME].st_mode):
        del entries[MANIFEST_NAME]
    return entries


def is_lfs_pointer(path: Path) -> bool:
    """Whether a small file holds Git LFS pointer text in place of its content."""
    with path.open("rb") as stream:
        return stream.read(_LFS_MAX_BYTES).startswith(_LFS_FIRST_LINE)


def _find_shape_problem(path: Path, status: os.stat_result, record: FileRecord) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link; copy the artifact with its links resolved (`cp -rL`)"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_size == record.size_bytes:
        return None
    if status.st_size == 0:
        return f"empty, expected {record.size_bytes} bytes"
    if status.st_size < _LFS_MAX_BYTES and is_lfs_pointer(path):
        return "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    kind = "truncated" if status.st_size < record.size_bytes else "too long"
    return f"{kind}: {status.st_size} bytes, expected {record.size_bytes}"


def _content_problems(root: Path, records: list[FileRecord]) -> Iterator[tuple[str, str]]:
    digests = hash_files(root / record.path for record in records)
    for record, digest in zip(records, digests, strict=True):
        if digest != record.sha256:
            yield record.path, f"altered: sha256 {digest[:12]}…, expected {record.sha256[:12]}…"
