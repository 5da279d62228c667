"""Facts from MLC-LLM's `mlc-chat-config.json`.

Source: MLC-LLM documentation, "Customize MLC Chat Config"; a `context_window_size` of -1 means a sliding window.
"""

from __future__ import annotations

from pathlib import Path

from llmpack.validate.artifacts.checkpoint_files import find_file_problems
from llmpack.validate.artifacts.json_facts import ids_at, int_at, read_object, str_at, table_at
from llmpack.validate.facts import ArtifactFacts, ArtifactProblem

FACT_FILE = "mlc-chat-config.json"


def read_mlc_facts(root: Path) -> ArtifactFacts:
    """The facts of an MLC-LLM artifact.

    Raises:
        ArtifactError: The file cannot be used.
    """
    values = read_object(root / FACT_FILE)
    model = table_at(values, "model_config")
    vocab_size, eos_token_ids = int_at(values, "vocab_size"), ids_at(values, "eos_token_id")
    return ArtifactFacts(
        kind="mlc-llm",
        path=str(root),
        fact_file=FACT_FILE,
        is_fixed_shape=False,
        batch_size=int_at(values, "max_batch_size") or int_at(model, "max_batch_size"),
        max_seq_len=int_at(values, "context_window_size") or int_at(model, "context_window_size"),
        prefill_buckets=None,
        tensor_parallel_size=int_at(values, "tensor_parallel_shards") or int_at(model, "tensor_parallel_shards"),
        num_attention_heads=int_at(model, "num_attention_heads"),
        num_key_value_heads=int_at(model, "num_key_value_heads"),
        max_num_batched_tokens=int_at(values, "prefill_chunk_size") or int_at(model, "prefill_chunk_size"),
        quantization=str_at(values, "quantization"),
        vocab_size=vocab_size,
        eos_token_ids=eos_token_ids,
        problems=(*find_file_problems(root), *_find_eos_problems(vocab_size, eos_token_ids)),
        checked_topics=frozenset({"files", "tokenizer"}),
    )


def _find_eos_problems(vocab_size: int | None, ids: tuple[int, ...] | None) -> tuple[ArtifactProblem, ...]:
    if ids is None:
        return (ArtifactProblem("tokenizer", "no end-of-text token: nothing stops but the length", FACT_FILE),)
    if vocab_size is not None and ids[-1] >= vocab_size:
        message = "eos_token_id is outside the vocabulary"
        return (ArtifactProblem("tokenizer", message, FACT_FILE, str(ids[-1]), f"below {vocab_size}"),)
    return ()
