"""Facts from optimum-rbln: `rbln_config.json`, in the form with `cls_name` and the older one with `_meta`.

Artifacts of the oldest releases keep the numbers in config.json under keys that begin with `rbln_`.

Source: optimum-rbln 0.12.0 `configuration_utils.py`, `configuration_decoderonly.py`; vllm-rbln 0.9.4 to 0.12.0
`utils/optimum`, which sets max_num_batched_tokens to max_seq_len up to 0.10 and to the prefill chunk from 0.11 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from llmpack.validate.artifacts.checkpoint_files import find_file_problems, find_token_problems
from llmpack.validate.artifacts.json_facts import ids_at, int_at, plain_dtype, read_object_if_there, str_at, table_at
from llmpack.validate.facts import ArtifactFacts

FACT_FILE = "rbln_config.json"
_CHUNKED_SINCE = Version("0.11")


def read_rbln_facts(root: Path) -> ArtifactFacts:
    """The facts of an optimum-rbln artifact.

    Raises:
        ArtifactError: A JSON file exists and cannot be used.
    """
    checkpoint = read_object_if_there(root / "config.json")
    rbln = read_object_if_there(root / FACT_FILE)
    values = {key.removeprefix("rbln_"): value for key, value in {**_old_values(checkpoint), **rbln}.items()}
    max_seq_len = int_at(values, "max_seq_len")
    vocab_size = int_at(checkpoint, "vocab_size")
    return ArtifactFacts(
        kind="optimum-rbln",
        path=str(root),
        fact_file=FACT_FILE if rbln else "config.json",
        is_fixed_shape=True,
        batch_size=int_at(values, "batch_size"),
        max_seq_len=max_seq_len,
        kv_block_size=int_at(values, "kvcache_block_size") or max_seq_len,
        max_num_batched_tokens=_step_tokens(values, max_seq_len),
        tensor_parallel_size=_find_ranks(values),
        num_attention_heads=int_at(checkpoint, "num_attention_heads"),
        num_key_value_heads=int_at(checkpoint, "num_key_value_heads"),
        devices=("rbln",),
        dtype=plain_dtype(str_at(values, "dtype") or str_at(values, "_dtype") or str_at(values, "_torch_dtype")),
        quantization=_find_quantization(values),
        model_id=str_at(checkpoint, "_name_or_path"),
        vocab_size=vocab_size,
        eos_token_ids=ids_at(checkpoint, "eos_token_id"),
        features=frozenset({"lora"} if values.get("lora_config") else ()),
        problems=(*find_file_problems(root), *find_token_problems(root, vocab_size)),
        checked_topics=frozenset({"files", "tokenizer"}),
    )


def _old_values(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in checkpoint.items() if key.startswith("rbln_")}


def _step_tokens(values: Mapping[str, Any], max_seq_len: int | None) -> int | None:
    try:
        release = Version(str_at(values, "optimum_rbln_version") or "0")
    except InvalidVersion:
        return None
    return int_at(values, "prefill_chunk_size") if release >= _CHUNKED_SINCE else max_seq_len


def _find_ranks(values: Mapping[str, Any]) -> int | None:
    """Old artifacts say it at the top, later ones only beside each compiled model."""
    tables = [values, *_compile_tables(values)]
    for name in ("num_devices", "tensor_parallel_size"):
        found = {ranks for table in tables if (ranks := int_at(table, name)) is not None}
        if len(found) == 1:
            return found.pop()
    return None


def _compile_tables(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    configs = values.get("_compile_cfgs")
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, Mapping):
            yield config


def _find_quantization(values: Mapping[str, Any]) -> str | None:
    if "quantization" not in values:
        return None
    return str_at(table_at(values, "quantization"), "weights") or "none"
