"""Artifacts of other compilers, as small as their readers need: JSON and text files only."""

from __future__ import annotations

import json
from pathlib import Path

LLAMA = {
    "_name_or_path": "meta-llama/Llama-2-7b-chat-hf",
    "vocab_size": 32000,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}

RBLN_OLD = {
    "_meta": {"version": "0.1.11", "cls": "RBLNLlamaForCausalLM"},
    "batch_size": 4,
    "max_seq_len": 4096,
    "_compile_cfgs": [{"compiled_model_name": "prefill", "tensor_parallel_size": 4}],
}

RBLN_NEW = {
    "cls_name": "RBLNLlamaForCausalLMConfig",
    "optimum_rbln_version": "0.12.0",
    "batch_size": 4,
    "max_seq_len": 8192,
    "kvcache_block_size": 4096,
    "prefill_chunk_size": 128,
    "dtype": "float32",
    "quantization": {"weights": "int4"},
    "_compile_cfgs": [{"num_devices": 8}, {"num_devices": 8}],
}

NEURON = {
    "checkpoint_id": "meta-llama/Llama-2-7b-chat-hf",
    "checkpoint_revision": "f" * 40,
    "batch_size": 4,
    "sequence_length": 4096,
    "tp_degree": 2,
    "torch_dtype": "bfloat16",
    "continuous_batching": True,
}

GENAI = {
    "model": {
        "type": "llama",
        "context_length": 4096,
        "vocab_size": 32000,
        "eos_token_id": [2],
        "decoder": {
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "session_options": {"provider_options": [{"cuda": {}}]},
        },
    },
    "search": {"max_length": 4096},
    "engine": {"dynamic_batching": {"max_batch_size": 4}},
}

TENSORRT_LLM = {
    "version": "0.17.0",
    "build_config": {
        "max_batch_size": 4,
        "max_seq_len": 4096,
        "max_input_len": 3072,
        "max_num_tokens": 8192,
        "plugin_config": {"tokens_per_block": 64, "lora_plugin": None},
    },
    "pretrained_config": {
        "architecture": "LlamaForCausalLM",
        "dtype": "float16",
        "vocab_size": 32000,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "mapping": {"tp_size": 2, "pp_size": 1},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    },
}

MLC = {
    "model_type": "llama",
    "quantization": "q4f16_1",
    "context_window_size": 4096,
    "prefill_chunk_size": 2048,
    "tensor_parallel_shards": 2,
    "max_batch_size": 4,
    "vocab_size": 32000,
    "eos_token_id": 2,
    "model_config": {"num_attention_heads": 32, "num_key_value_heads": 8},
}

OPENVINO_GRAPH = """\
input_stream: "HTTP_REQUEST_PAYLOAD:input"
node: {
  name: "LLMExecutor"
  calculator: "HttpLLMCalculator"
  node_options: {
    [type.googleapis.com / mediapipe.LLMCalculatorOptions]: {
      models_path: "./",
      plugin_config: '{"KV_CACHE_PRECISION": "u8"}',
      max_num_seqs: 4,
      max_num_batched_tokens: 512,
      cache_size: 2,
      device: "GPU"
    }
  }
}
"""


def write_json(directory: Path, name: str, values: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(json.dumps(values), encoding="utf-8")
    return directory


def write_rbln(directory: Path, **changes: object) -> Path:
    """The artifact of the tutorial: 4096 tokens, 4 sequences, 4 devices."""
    write_json(directory, "config.json", LLAMA)
    return write_json(directory, "rbln_config.json", {**RBLN_OLD, **changes})


def write_foreign(directory: Path, kind: str) -> Path:
    """The smallest artifact of `kind`."""
    files: dict[str, dict[str, object]] = {
        "optimum-rbln": {"rbln_config.json": RBLN_OLD},
        "optimum-neuron": {"neuron_config.json": NEURON},
        "onnxruntime-genai": {"genai_config.json": GENAI},
        "tensorrt-llm": {"config.json": TENSORRT_LLM},
        "mlc-llm": {"mlc-chat-config.json": MLC},
    }
    for name, values in files.get(kind, {}).items():
        write_json(directory, name, values)
    if kind == "openvino":
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "graph.pbtxt").write_text(OPENVINO_GRAPH, encoding="utf-8")
    return directory


FOREIGN_KINDS = ("optimum-rbln", "optimum-neuron", "onnxruntime-genai", "tensorrt-llm", "mlc-llm", "openvino")
