"""A checkpoint: everything about the model that comes in, with its weights still on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmpack.checkpoint.weights import WeightSource

CheckpointKind = Literal["hub", "directory", "gguf"]


@dataclass(frozen=True)
class Checkpoint:
    """A model as published. Nothing in it has been interpreted yet.

    Attributes:
        kind: How the model was given.
        model: Hub repository id, or the name of the directory or file without its parents.
        revision: The 40-digit hub commit that every file was taken from; None for local checkpoints.
        directory: A directory that transformers can load with `from_pretrained`; None for .gguf.
        config: config.json as it stands (synthesised for .gguf), `auto_map` and other unused keys included.
        generation_config: generation_config.json as it stands, or None.
        weights: The tensors under Hugging Face's names.
        sidecar_files: What an artifact copies, under Hugging Face's names: a path, or the content itself.
        source_files: Name (with forward slashes, relative to the checkpoint) and path of each file that was read.
    """

    kind: CheckpointKind
    model: str
    revision: str | None
    directory: Path | None
    config: dict[str, Any]
    generation_config: dict[str, Any] | None
    weights: WeightSource
    sidecar_files: dict[str, Path | bytes]
    source_files: list[tuple[str, Path]]

    def read_sidecar(self, name: str) -> bytes | None:
        """Content of the sidecar file `name`, or None when the checkpoint has none."""
        content = self.sidecar_files.get(name)
        return content.read_bytes() if isinstance(content, Path) else content
