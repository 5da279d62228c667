"""How an inductor program is put together from native libraries: the contract between the compiler and the runner.

    input_ids --> [embed] --x--> [block] --x--> [block] --x--> ... --x--> [head] --> logits
                                  ^  |           ^  |
                                 slot cache, changed in place

Every arrow is one call of a library. A library holds code alone: its constants are tensors of the weights file, other
ones for each layer that shares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from llmpack.errors import ManifestError

LIVE_STEP = 64
"""Slots are read in multiples of so many positions: a length between two multiples costs what the larger one does."""

PACKED_ROWS = 32
"""Rows of a weight that lie side by side in its packed form (see `pack_rows`)."""


class LibraryCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One call.

    Attributes:
        library: File relative to the artifact.
        constants: Name in the library -> tensor of the weights file.
    """

    library: str
    constants: Mapping[str, str]


class LibraryProgram(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program as calls.

    Attributes:
        embed: Tokens to hidden states; none in a program that starts with hidden states.
        blocks: One call for each layer, in order.
        head: Hidden states to logits.
    """

    embed: LibraryCall | None
    blocks: list[LibraryCall]
    head: LibraryCall


def encode_program(program: LibraryProgram) -> bytes:
    """Returns the bytes of a program file."""
    return msgspec.json.format(msgspec.json.encode(program), indent=1) + b"\n"


def read_program(path: Path) -> LibraryProgram:
    """Returns the program in a file.

    Raises:
        ManifestError: It is no such file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=LibraryProgram)
    except (OSError, msgspec.DecodeError) as error:
        raise ManifestError("a program file cannot be read", where=str(path), given=str(error)) from error


def packed_name(parameter: str) -> str:
    """Returns the name under which a matrix is stored in the form that products read."""
    return f"{parameter}.packed"


def live_len(num_tokens: int) -> int:
    """Returns how many positions are read so that the first `num_tokens` are among them."""
    return -(-num_tokens // LIVE_STEP) * LIVE_STEP


def cache_len(max_seq_len: int) -> int:
    """Returns the rows of a slot, S: always more than are read, so that the part that is read is never the whole.

    torch.export would otherwise have to tell apart the two memory layouts. Rows that no token reaches cost no memory.
    """
    return live_len(max_seq_len) + LIVE_STEP
