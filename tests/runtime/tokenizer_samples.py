"""Two small tokenizers that differ in everything that matters: byte-level, and metaspace with byte fallback."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from llmpack.runtime.tokenizer import Tokenizer

STORIES = Path(__file__).parents[1] / "data" / "stories260K"
BYTE_LEVEL_CONFIG = {
    "bos_token": "<|start|>",
    "eos_token": {"__type": "AddedToken", "content": "<|end|>", "lstrip": False},
}
_SENTENCES = [
    "The quick brown fox jumps over the lazy dog, one, two STOP here.",
    "Once upon a time there was a little café where the sun shone all day.",
    "Where is the end of the story? Here, there, everywhere: the end.",
    "emoji 😀 and € signs, naïve façade, 日本語",
] * 3


def byte_level_backend() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_SENTENCES, trainer)
    return backend


@cache
def byte_level() -> Tokenizer:
    return Tokenizer(byte_level_backend(), dict(BYTE_LEVEL_CONFIG))


@cache
def stories() -> Tokenizer:
    return Tokenizer.from_directory(STORIES)


BOTH = {"byte_level": byte_level, "stories": stories}


def write_byte_level(directory: Path) -> Path:
    """A directory as an artifact has it."""
    byte_level_backend().save(str(directory / "tokenizer.json"))
    config = {**BYTE_LEVEL_CONFIG, "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
