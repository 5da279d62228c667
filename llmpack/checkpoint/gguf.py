"""A checkpoint in one .gguf file (llama family), presented as Hugging Face would have published it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.directory import CONFIG_FILE, GENERATION_CONFIG_FILE
from llmpack.checkpoint.gguf_file import read_gguf
from llmpack.checkpoint.gguf_tokenizer import GgufVocabulary, build_tokenizer_files, read_vocabulary
from llmpack.errors import UsageError


def read_gguf_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in `path`: metadata is read, tensors are dequantised to float32 when asked for.

    Raises:
        UsageError: The gguf package is not installed.
        CorruptCheckpoint: The file is damaged, or tensors are missing or left over.
        UnsupportedArchitecture: Another family, tokenizer or rope scaling than is known.
    """
    try:
        from llmpack.checkpoint.gguf_config import build_config, check_family
        from llmpack.checkpoint.gguf_weights import GgufWeights, HeadCounts, block_sizes, read_rope_factors
    except ModuleNotFoundError as error:
        raise UsageError(
            f"reading a .gguf file needs the package {error.name}", next_step="pip install 'llmpack[compile]'"
        ) from error
    file = read_gguf(path, block_sizes())
    check_family(file)
    config = build_config(file, read_rope_factors(file))
    vocabulary = read_vocabulary(file)
    config |= _special_ids(vocabulary)
    generation_config = _special_ids(vocabulary) | {"eos_token_id": _all_ends(vocabulary)}
    weights = GgufWeights(file, HeadCounts(config["num_attention_heads"], config["num_key_value_heads"]))
    sidecars: dict[str, Path | bytes] = {
        CONFIG_FILE: _to_bytes(config),
        GENERATION_CONFIG_FILE: _to_bytes(generation_config),
        **build_tokenizer_files(file, vocabulary, config["max_position_embeddings"]),
    }
    return Checkpoint(
        kind="gguf",
        model=path.name,
        revision=None,
        directory=None,
        config=config,
        generation_config=generation_config,
        weights=weights,
        sidecar_files=sidecars,
        source_files=[(path.name, path)],
    )


def _special_ids(vocabulary: GgufVocabulary) -> dict[str, Any]:
    return {
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_id": vocabulary.eos_token_id,
        "pad_token_id": vocabulary.pad_token_id,
    }


def _all_ends(vocabulary: GgufVocabulary) -> list[int]:
    first = [] if vocabulary.eos_token_id is None else [vocabulary.eos_token_id]
    return sorted({*first, *vocabulary.end_of_turn_ids})


def _to_bytes(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
