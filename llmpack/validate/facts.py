"""What is known about a compiled artifact, whoever compiled it.

Every fact is a value or None. None means unknown: a rule that needs it reports "not checked" and never passes
silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ArtifactKind = Literal[
    "llmpack", "optimum-rbln", "optimum-neuron", "onnxruntime-genai", "tensorrt-llm", "mlc-llm", "openvino"
]
ProblemTopic = Literal["runtime-range", "files", "tokenizer", "machine"]


@dataclass(frozen=True, slots=True)
class ArtifactProblem:
    """A defect of the artifact itself, or of this machine as its host.

    Attributes:
        topic: Which rule reports it.
        path: Of the file at fault, relative to the artifact, or empty.
        given: What was found.
        needed: What the artifact needs.
    """

    topic: ProblemTopic
    message: str
    path: str = ""
    given: str | None = None
    needed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """The facts that rules compare serving configs with.

    Attributes:
        kind: The compiler that wrote the artifact.
        path: The artifact directory, absolute.
        fact_file: Where the facts come from, for messages: `rbln_config.json`.
        is_fixed_shape: Served values must equal the compiled ones; else they may be smaller.
        batch_size: Sequences that run at once, at most.
        max_seq_len: Tokens of a sequence, prompt and output together.
        kv_block_size: Tokens of a block of the key-value cache; `max_seq_len` for slot caches.
        max_num_batched_tokens: Tokens of one step: what the setting must be (fixed shape) or may be at most.
        prefill_buckets: Compiled prompt lengths, ascending; a step must have room for the largest.
        tensor_parallel_size: Ranks.
        num_attention_heads: Query heads; ranks must divide them.
        num_key_value_heads: Key-value heads; ranks should divide them.
        devices: Values of `device` that can run the artifact.
        dtype: `float32`, `float16` or `bfloat16`.
        quantization: Of the weights, in the compiler's words; `none` without one.
        kv_cache_dtype: Of the cache, as `dtype`, or `int8`, `fp8`.
        model_id: Hub repository of the source, or the name of a local directory.
        is_hub_model: Whether `model_id` is a hub id; a local name is compared by its last part only.
        revision: The hub commit.
        vocab_size: Width of the logits.
        eos_token_ids: All ids that end a text.
        features: Names out of `speculative`, `lora`, `pipeline`, `prefix-caching` that were compiled in.
        problems: Found while reading, by topic; only topics in `checked_topics` were looked at.
        checked_topics: See `problems`.
    """

    kind: ArtifactKind
    path: str
    fact_file: str
    is_fixed_shape: bool
    batch_size: int | None = None
    max_seq_len: int | None = None
    kv_block_size: int | None = None
    max_num_batched_tokens: int | None = None
    prefill_buckets: tuple[int, ...] | None = None
    tensor_parallel_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    devices: tuple[str, ...] | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    model_id: str | None = None
    is_hub_model: bool = True
    revision: str | None = None
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] | None = None
    features: frozenset[str] | None = None
    problems: tuple[ArtifactProblem, ...] = ()
    checked_topics: frozenset[ProblemTopic] = frozenset()

    def problems_of(self, topic: ProblemTopic) -> tuple[ArtifactProblem, ...]:
        """The problems of one topic."""
        return tuple(problem for problem in self.problems if problem.topic == topic)
