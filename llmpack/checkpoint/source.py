"""Opens a model however it was given: hub id, directory or .gguf file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.directory import read_directory
from llmpack.errors import CheckpointNotFound, UsageError

# Source: huggingface_hub.utils.validate_repo_id (letters, digits, `-`, `_`, `.`; at most one owner).
_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_FORMS = "a hub id (owner/name), a directory, or a .gguf file"


def open_checkpoint(
    model: str,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Checkpoint:
    """The checkpoint that `model` names. A path that exists wins over a hub id of the same spelling.

    Args:
        model: Hub id, directory or .gguf file.
        revision: Branch, tag or commit; only for hub ids. None means the default branch.
        cache_dir: Hub cache to use instead of Hugging Face's own.
        progress: Told in words what is being fetched.

    Raises:
        UsageError: A revision for a local path.
        CheckpointNotFound: Nothing is there.
        CheckpointAccessDenied: The repository is gated.
        UnsafeCheckpoint: The weights are pickled.
        CorruptCheckpoint: Files are damaged or incomplete.
        UnsupportedArchitecture: Quantised weights, or a .gguf of an unknown family.
    """
    path = Path(model).expanduser()
    if path.exists():
        return _open_local(path, revision)
    if not _HUB_ID.fullmatch(model) or model.endswith((".gguf", ".safetensors")):
        raise CheckpointNotFound(
            "there is no such model", given=model, allowed=_FORMS, next_step=spelling_hint(path) or "Check the path."
        )
    from llmpack.checkpoint.hub import fetch_from_hub  # the hub client takes a third of a second to import

    return fetch_from_hub(model, revision=revision, cache_dir=cache_dir, progress=progress)


def _open_local(path: Path, revision: str | None) -> Checkpoint:
    if revision is not None:
        raise UsageError(
            "a revision can be chosen only for a hub id, not for a local path",
            where="--revision",
            given=f"{revision} with {path}",
            next_step="Leave --revision out.",
        )
    if path.is_dir():
        return read_directory(path)
    if path.suffix.lower() == ".gguf":
        from llmpack.checkpoint.gguf import read_gguf_checkpoint

        return read_gguf_checkpoint(path)
    raise CheckpointNotFound(
        "the file is not a checkpoint",
        given=str(path),
        allowed=_FORMS,
        next_step=f"Perhaps you meant its directory: {path.parent}",
    )


def spelling_hint(path: Path) -> str | None:
    """A sentence naming local paths that are spelt like `path`, or None."""
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, siblings, n=3, cutoff=0.75)
    places = ", ".join(str(path.parent / name) for name in near)
    return f"Local paths of similar spelling: {places}." if near else None
