"""A checkpoint in a directory as `save_pretrained` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmpack.checkpoint.checkpoint import Checkpoint, CheckpointKind
from llmpack.checkpoint.json_file import read_json
from llmpack.checkpoint.safetensors_weights import open_safetensors
from llmpack.errors import CheckpointNotFound, UnsupportedArchitecture

CONFIG_FILE = "config.json"
GENERATION_CONFIG_FILE = "generation_config.json"

SIDECAR_FILES = (
    CONFIG_FILE,
    GENERATION_CONFIG_FILE,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    # The licence travels with the weights.
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
    "NOTICE.txt",
    "USE_POLICY.md",
)
TEMPLATES_FOLDER = "additional_chat_templates"


@dataclass(frozen=True)
class Origin:
    """How a directory came about: the first three fields of `Checkpoint`."""

    kind: CheckpointKind
    model: str
    revision: str | None


def read_directory(directory: Path, origin: Origin | None = None) -> Checkpoint:
    """The checkpoint in `directory`. Reads JSON files and tensor headers, no tensor.

    Args:
        directory: Holds config.json and safetensors weights.
        origin: Where it came from; a local directory when None.

    Raises:
        CheckpointNotFound: config.json or the weights are missing.
        UnsafeCheckpoint: The weights are pickled.
        CorruptCheckpoint: A file is damaged, or index and shards disagree.
        UnsupportedArchitecture: The weights are quantised.
    """
    origin = origin or Origin("directory", directory.resolve().name, None)
    config = _read_config(directory)
    generation_path = directory / GENERATION_CONFIG_FILE
    sidecars = find_sidecars(directory)
    weights = open_safetensors(directory)
    weight_files = [(path.name, path) for path in weights.files]
    return Checkpoint(
        kind=origin.kind,
        model=origin.model,
        revision=origin.revision,
        directory=directory,
        config=config,
        generation_config=read_json(generation_path) if generation_path.is_file() else None,
        weights=weights,
        sidecar_files=dict(sidecars),
        source_files=sorted([*sidecars.items(), *weight_files]),
    )


def find_sidecars(directory: Path) -> dict[str, Path]:
    """The files of `directory` that an artifact carries along, by name relative to it."""
    found = {name: directory / name for name in SIDECAR_FILES if (directory / name).is_file()}
    templates = sorted((directory / TEMPLATES_FOLDER).glob("*.jinja"))
    return found | {f"{TEMPLATES_FOLDER}/{path.name}": path for path in templates}


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_FILE
    if not path.is_file():
        names = sorted(entry.name for entry in directory.iterdir())
        ggufs = [name for name in names if name.endswith(".gguf")]
        raise CheckpointNotFound(
            f"there is no {CONFIG_FILE}",
            where=str(directory),
            given=", ".join(names[:20]) or "an empty directory",
            next_step=f"Pass the .gguf file itself: {', '.join(ggufs)}." if ggufs else "Is it the right directory?",
        )
    config = read_json(path)
    check_unquantised(config, str(path))
    return config


def check_unquantised(config: dict[str, Any], where: str) -> None:
    """Raise UnsupportedArchitecture when config.json says that the weights are quantised."""
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        quantization = part.get("quantization_config") or part.get("compression_config")
        if quantization:
            raise UnsupportedArchitecture(
                "the checkpoint is quantised (quantization_config), which is not supported yet",
                where=where,
                given=quantization,
                next_step="Use the unquantised checkpoint of the same model.",
            )
