"""Facts from the `config.json` of a TensorRT-LLM engine.

Source: TensorRT-LLM documentation, `trtllm-build`: `build_config` holds the limits, `pretrained_config` the model.
"""

from __future__ import annotations

from pathlib import Path

from llmpack.validate.artifacts.checkpoint_files import find_file_problems
from llmpack.validate.artifacts.json_facts import int_at, plain_dtype, read_object, str_at, table_at, value_at
from llmpack.validate.facts import ArtifactFacts

FACT_FILE = "config.json"


def read_tensorrt_llm_facts(root: Path) -> ArtifactFacts:
    """The facts of a TensorRT-LLM engine directory.

    Raises:
        ArtifactError: The file cannot be used.
    """
    values = read_object(root / FACT_FILE)
    build, model = table_at(values, "build_config"), table_at(values, "pretrained_config")
    features = {
        "lora": value_at(build, "plugin_config", "lora_plugin") not in (None, False),
        "speculative": value_at(build, "speculative_decoding_mode") not in (None, 1, "NONE"),
        "pipeline": (int_at(model, "mapping", "pp_size") or 1) > 1,
        "prefix-caching": value_at(build, "plugin_config", "use_paged_context_fmha") is True,
    }
    return ArtifactFacts(
        kind="tensorrt-llm",
        path=str(root),
        fact_file=FACT_FILE,
        is_fixed_shape=False,
        batch_size=int_at(build, "max_batch_size"),
        max_seq_len=int_at(build, "max_seq_len"),
        kv_block_size=int_at(build, "plugin_config", "tokens_per_block"),
        max_num_batched_tokens=int_at(build, "max_num_tokens"),
        tensor_parallel_size=int_at(model, "mapping", "tp_size"),
        num_attention_heads=int_at(model, "num_attention_heads"),
        num_key_value_heads=int_at(model, "num_key_value_heads"),
        devices=("cuda", "gpu"),
        dtype=plain_dtype(str_at(model, "dtype")),
        quantization=_algorithm(str_at(model, "quantization", "quant_algo"), "quantization" in model),
        kv_cache_dtype=_algorithm(str_at(model, "quantization", "kv_cache_quant_algo"), known=False),
        vocab_size=int_at(model, "vocab_size"),
        features=frozenset(name for name, is_compiled in features.items() if is_compiled),
        problems=tuple(find_file_problems(root)),
        checked_topics=frozenset({"files"}),
    )


def _algorithm(name: str | None, known: bool) -> str | None:
    if name is not None:
        return name.lower()
    return "none" if known else None
