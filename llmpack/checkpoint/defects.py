"""Errors about damaged checkpoints, worded alike for every kind of file."""

from __future__ import annotations

import difflib

from llmpack.errors import CorruptCheckpoint


def corrupt_checkpoint(place: str, problems: list[str]) -> CorruptCheckpoint:
    """One error that lists every problem of the weights in `place` (a file or directory)."""
    listing = "\n".join(f"  - {problem}" for problem in problems)
    return CorruptCheckpoint(
        f"the weights of {place} cannot be used:\n{listing}",
        next_step="Download the files again and compare their sizes with the source's.",
    )


def tensor_missing(name: str, names: list[str]) -> CorruptCheckpoint:
    """The error for a tensor that was asked for and is not there; lists the names most like it."""
    near = difflib.get_close_matches(name, names, n=3)
    return CorruptCheckpoint(
        f"there is no tensor {name!r}", allowed=f"one of {len(names)} names, the nearest: {', '.join(near) or 'none'}"
    )
