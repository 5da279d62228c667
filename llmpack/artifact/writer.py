"""Writing an artifact: into a temporary directory beside the target, renamed once when everything is on the disk.

A compile that is killed at any moment leaves a hidden temporary directory that no reader opens; the next compile to
the same target removes it. A temporary directory is locked by the process that fills it, and the system drops the
lock when that process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from llmpack.artifact.consistency import find_contradictions, find_path_problem
from llmpack.artifact.hashing import hash_files
from llmpack.artifact.identity import compute_build_id
from llmpack.artifact.integrity import list_entries
from llmpack.artifact.manifest import MANIFEST_NAME, FileRecord, Manifest
from llmpack.artifact.reader import TEMPORARY_MARK
from llmpack.errors import CompileError, UsageError


class ArtifactWriter:
    """A context manager that makes `target` appear whole or not at all.

    Args:
        target: The artifact to be; nothing may be there yet. Parents are made.

    Attributes:
        path: The directory to write into; valid inside the context and before `commit`.

    Raises:
        UsageError: On entering: the target exists or its parent cannot be written to.
    """

    def __init__(self, target: Path | str) -> None:
        self._target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow a link at the target
        self._lock: int | None = None
        self.path = self._target

    def __enter__(self) -> Self:
        check_target(self._target)
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(self._target)
            self.path, self._lock = _make_locked(self._target)
        except OSError as error:
            raise UsageError(f"cannot write there ({error.strerror})", where=str(self._target.parent)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.path != self._target:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def commit(self, draft: Manifest) -> Manifest:
        """The manifest as written; afterwards the target exists, is complete and is on the disk.

        Args:
            draft: All facts; its `build_id`, `files` and `measured.artifact_bytes` are replaced by those of the files
                that lie in `path`.

        Raises:
            CompileError: The draft contradicts itself or the files.
            UsageError: Someone else made the target in the meantime.
        """
        manifest = _complete(draft, _record_files(self.path))
        _write_synced(self.path / MANIFEST_NAME, encode_manifest(manifest))
        _sync_directories(self.path)
        check_target(self._target)
        try:
            self.path.rename(self._target)
        except OSError as error:
            raise UsageError(
                f"cannot move the artifact to its place ({error.strerror})", where=str(self._target)
            ) from error
        self.path = self._target
        _sync_directory(self._target.parent)
        return manifest


def check_target(target: Path) -> None:
    """Passes when nothing is at `target`.

    Raises:
        UsageError: Something is; artifacts are never merged into a directory nor replaced.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(
            "the output exists already",
            where=str(target),
            allowed="a path where nothing is",
            next_step="Choose another path or remove it first.",
        )


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of `llmpack.json`: indented JSON in field order, the same for equal manifests."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def _complete(draft: Manifest, files: list[FileRecord]) -> Manifest:
    artifact_bytes = sum(record.size_bytes for record in files)
    measured = msgspec.structs.replace(draft.measured, artifact_bytes=artifact_bytes)
    manifest = msgspec.structs.replace(draft, files=files, measured=measured, build_id="")
    problems = find_contradictions(manifest)
    if problems:
        raise CompileError("the manifest contradicts itself: " + "; ".join(problems))
    return msgspec.structs.replace(manifest, build_id=compute_build_id(manifest))


def _record_files(root: Path) -> list[FileRecord]:
    """A record of every file below `root` by path, each of which is on the disk afterwards."""
    entries = sorted(list_entries(root).items())
    paths = [root / name for name, _ in entries]
    unusable = [name for name, _ in entries if find_path_problem(name) or (root / name).is_symlink()]
    if unusable:
        raise CompileError("links and odd names cannot be part of an artifact", given=unusable)
    digests = hash_files(paths, sync=True)
    return [
        FileRecord(path=name, sha256=digest, size_bytes=status.st_size)
        for (name, status), digest in zip(entries, digests, strict=True)
    ]


def _make_locked(target: Path) -> tuple[Path, int]:
    """A new directory beside `target` and the descriptor that holds its lock.

    Another compile may take a directory for a stale one before it is locked; then another is made.
    """
    while True:
        path = target.with_name(f".{target.name}{TEMPORARY_MARK}{os.getpid()}-{secrets.token_hex(4)}")
        path.mkdir()
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _remove_stale(target: Path) -> None:
    """Removes the temporary directories of compiles to `target` that ended without cleaning up."""
    prefix = f".{target.name}{TEMPORARY_MARK}"
    for path in target.parent.iterdir():
        if path.name.startswith(prefix) and path.is_dir():
            _remove_if_unlocked(path)


def _remove_if_unlocked(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass  # its compile is running
    finally:
        os.close(lock)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directories(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        _sync_directory(Path(folder))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
