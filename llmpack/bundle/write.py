"""Writing a bundle: beside its place, validated there, moved once."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from llmpack.artifact.reader import TEMPORARY_MARK
from llmpack.artifact.writer import check_target
from llmpack.bundle.rendering import BundleFile
from llmpack.errors import UsageError


@contextmanager
def staged_bundle(target: Path) -> Iterator[Path]:
    """A new directory beside `target` that becomes it when the block ends without an error, and vanishes otherwise.

    Raises:
        UsageError: The target exists or cannot be written.
    """
    check_target(target)
    stage = target.with_name(f".{target.name}{TEMPORARY_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        stage.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write there ({error.strerror})", where=str(target.parent)) from error
    try:
        yield stage
        check_target(target)
        stage.rename(target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def write_files(root: Path, files: Sequence[BundleFile]) -> None:
    """Writes the files below `root`, with the same modes whatever the umask."""
    for file in files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.text.encode("utf-8"))
        path.chmod(0o755 if file.is_executable else 0o644)


def take_artifact(source: Path, target: Path) -> None:
    """Makes `target` hold the artifact `source`: by hard links where the file system allows them, else by copies.

    Artifacts are never changed in place, so a shared file is as good as a copy and costs nothing.
    """
    shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target
