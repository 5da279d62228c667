"""Facts from onnxruntime-genai's `genai_config.json`.

Source: ONNX Runtime documentation, "Configuration reference" of the generate() API. `model.context_length` is what
the graph allows; the key-value cache grows up to it, so a server may ask for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmpack.validate.artifacts.checkpoint_files import find_file_problems, find_token_problems
from llmpack.validate.artifacts.json_facts import ids_at, int_at, read_object, table_at, value_at
from llmpack.validate.facts import ArtifactFacts

FACT_FILE = "genai_config.json"


def read_genai_facts(root: Path) -> ArtifactFacts:
    """The facts of an onnxruntime-genai artifact.

    Raises:
        ArtifactError: The file cannot be used.
    """
    values = read_object(root / FACT_FILE)
    model, decoder = table_at(values, "model"), table_at(values, "model", "decoder")
    vocab_size = int_at(model, "vocab_size")
    return ArtifactFacts(
        kind="onnxruntime-genai",
        path=str(root),
        fact_file=FACT_FILE,
        is_fixed_shape=False,
        batch_size=int_at(values, "engine", "dynamic_batching", "max_batch_size"),
        max_seq_len=int_at(model, "context_length"),
        tensor_parallel_size=1,
        num_attention_heads=int_at(decoder, "num_attention_heads"),
        num_key_value_heads=int_at(decoder, "num_key_value_heads"),
        devices=_find_devices(decoder),
        vocab_size=vocab_size,
        eos_token_ids=ids_at(model, "eos_token_id"),
        features=frozenset(),
        problems=(*find_file_problems(root), *find_token_problems(root, vocab_size)),
        checked_topics=frozenset({"files", "tokenizer"}),
    )


def _find_devices(decoder: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The CPU is there without being named; every other provider is a key of its own."""
    options = value_at(decoder, "session_options", "provider_options")
    if not isinstance(options, list):
        return None
    names = [str(name).lower() for option in options if isinstance(option, Mapping) for name in option]
    return tuple(names) or ("cpu",)
