"""Facts from optimum-neuron's `neuron_config.json`.

Source: optimum-neuron 0.4.5 `models/inference/backend/config.py`; a checkpoint id with a leading slash or dot is a
local directory.
"""

from __future__ import annotations

from pathlib import Path

from llmpack.validate.artifacts.checkpoint_files import find_file_problems, find_token_problems
from llmpack.validate.artifacts.json_facts import ids_at, int_at, plain_dtype, read_object, read_object_if_there, str_at
from llmpack.validate.facts import ArtifactFacts

FACT_FILE = "neuron_config.json"


def read_neuron_facts(root: Path) -> ArtifactFacts:
    """The facts of an optimum-neuron artifact.

    Raises:
        ArtifactError: A JSON file cannot be used.
    """
    values, checkpoint = read_object(root / FACT_FILE), read_object_if_there(root / "config.json")
    model_id = str_at(values, "checkpoint_id")
    vocab_size = int_at(checkpoint, "vocab_size")
    return ArtifactFacts(
        kind="optimum-neuron",
        path=str(root),
        fact_file=FACT_FILE,
        is_fixed_shape=True,
        batch_size=int_at(values, "max_batch_size") or int_at(values, "batch_size"),
        max_seq_len=int_at(values, "sequence_length"),
        tensor_parallel_size=int_at(values, "tp_degree"),
        num_attention_heads=int_at(checkpoint, "num_attention_heads"),
        num_key_value_heads=int_at(checkpoint, "num_key_value_heads"),
        devices=("neuron",),
        dtype=plain_dtype(str_at(values, "torch_dtype")),
        model_id=model_id,
        is_hub_model=not (model_id or "").startswith(("/", ".")),
        revision=str_at(values, "checkpoint_revision"),
        vocab_size=vocab_size,
        eos_token_ids=ids_at(checkpoint, "eos_token_id"),
        features=frozenset({"speculative"} if int_at(values, "speculation_length") else ())
        | frozenset({"pipeline"} if (int_at(values, "pp_degree") or 1) > 1 else ()),
        problems=(*find_file_problems(root), *find_token_problems(root, vocab_size)),
        checked_topics=frozenset({"files", "tokenizer"}),
    )
