"""Opening an artifact: its manifest is decoded strictly and its files are checked before anything uses them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec

from llmpack.artifact.consistency import find_contradictions
from llmpack.artifact.identity import compute_build_id
from llmpack.artifact.integrity import Verify, find_file_problems, is_lfs_pointer
from llmpack.artifact.manifest import MANIFEST_NAME, SCHEMA_VERSION, Manifest
from llmpack.errors import ArtifactError, IntegrityError, ManifestError

TEMPORARY_MARK = ".llmpack-tmp-"
_RESTORE = "Copy or download the artifact again, or compile the model again."


@dataclass(frozen=True, slots=True)
class Artifact:
    """A checked artifact.

    Attributes:
        path: Its directory, absolute.
        manifest: Its facts.
    """

    path: Path
    manifest: Manifest


def open_artifact(path: Path | str, verify: Verify = "full") -> Artifact:
    """The artifact at `path`, every file of which has been checked against the manifest.

    Args:
        path: The directory that a compile wrote.
        verify: "full" hashes every file; "sizes" only compares names and sizes.

    Raises:
        ArtifactError: There is no artifact, or the compile that wrote it did not finish.
        ManifestError: The manifest is unreadable, newer than this llmpack or contradicts itself.
        IntegrityError: Files are missing, extra or altered; all are named.
    """
    root = Path(path).resolve()
    manifest = read_manifest(root)
    problems = find_file_problems(root, manifest, verify)
    if problems:
        raise IntegrityError("the artifact's files are not those of its manifest", problems=problems, where=str(root))
    return Artifact(root, manifest)


def read_manifest(path: Path | str) -> Manifest:
    """The manifest of the artifact directory `path`; the other files are not looked at.

    Raises:
        ArtifactError: There is no artifact at `path`.
        ManifestError: The manifest is unreadable, newer than this llmpack or contradicts itself.
    """
    root = Path(path)
    _check_directory(root)
    where = str(root / MANIFEST_NAME)
    try:
        raw = (root / MANIFEST_NAME).read_bytes()
    except OSError as error:
        raise ManifestError(f"cannot be read ({error.strerror})", where=where) from error
    if is_lfs_pointer(root / MANIFEST_NAME):
        raise ManifestError("the manifest is a Git LFS pointer", where=where, next_step="Fetch it with `git lfs pull`.")
    _check_schema_version(raw, where)
    manifest = _decode(raw, where)
    _check_sound(manifest, where)
    return manifest


def _check_directory(root: Path) -> None:
    if not root.exists():
        raise ArtifactError("no such artifact", where=str(root), next_step="`llmpack compile MODEL -o DIR` makes one.")
    if not root.is_dir():
        raise ArtifactError("an artifact is a directory, this is a file", where=str(root))
    if TEMPORARY_MARK in root.resolve().name:
        raise ArtifactError(
            "the compile that writes here has not finished", where=str(root), next_step="Compile again."
        )
    if not (root / MANIFEST_NAME).is_file():
        is_checkpoint = (root / "config.json").is_file()
        hint = (
            f"This looks like a checkpoint: `llmpack compile {root} -o DIR` compiles it." if is_checkpoint else _RESTORE
        )
        raise ManifestError(f"no {MANIFEST_NAME}, so no artifact", where=str(root), next_step=hint)


def _check_schema_version(raw: bytes, where: str) -> None:
    """Runs before the strict decoding, so that a newer manifest is called newer and not malformed."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"not valid JSON ({error})", where=where, next_step=_RESTORE) from error
    version = found.get("schema_version") if isinstance(found, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ManifestError("no schema_version", where=where, given=version, allowed=f"1 to {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise ManifestError(
            "the manifest is newer than this llmpack",
            where=f"{where} $.schema_version",
            given=version,
            allowed=f"1 to {SCHEMA_VERSION}",
            next_step=f"Upgrade: pip install 'llmpack{_writer_version(found)}'",
        )


def _writer_version(found: dict[str, object]) -> str:
    toolchain = found.get("toolchain")
    version = toolchain.get("llmpack") if isinstance(toolchain, dict) else None
    return f">={version}" if isinstance(version, str) else ""


def _decode(raw: bytes, where: str) -> Manifest:
    try:
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.ValidationError as error:
        message = str(error)
        raise ManifestError(f"{message}{_nearest_key(message)}", where=where, next_step=_RESTORE) from error


def _nearest_key(message: str) -> str:
    """A hint with the nearest valid key when `message` is msgspec's about an unknown field."""
    match = re.search(r"unknown field `([^`]*)`(?: - at `([^`]*)`)?", message)
    if match is None:
        return ""
    owner: type = Manifest
    for name in re.findall(r"\.(\w+)", match[2] or ""):
        hint = get_type_hints(owner)[name]
        owner = next(iter(get_args(hint)), hint)
    nearest = get_close_matches(match[1], owner.__annotations__, n=1)
    return f"; nearest key: {nearest[0]}" if nearest else ""


def _check_sound(manifest: Manifest, where: str) -> None:
    problems = find_contradictions(manifest)
    if compute_build_id(manifest) != manifest.build_id:
        problems.append("$.build_id is not the hash of the other fields: the manifest was edited")
    if problems:
        raise ManifestError(f"{where} contradicts itself: " + "; ".join(problems), next_step=_RESTORE)
