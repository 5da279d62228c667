"""What a user asks the compiler for; nothing here is resolved yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """The arguments of `llmpack compile`.

    Attributes:
        model: Hub id, checkpoint directory, or .gguf file.
        output: Artifact directory to create; it may not exist.
        revision: Hub branch, tag or commit; None for the default branch.
        max_seq_len: Tokens of a slot, prompt and output together; None for the model's own length, at most 2048.
        batch_size: Slots.
        tensor_parallel_size: Ranks.
        engine: `onnxruntime`, `inductor`, or `auto` for inductor where this machine can compile for it.
        dtype: Of the weights: `float32`, `bfloat16`, or `auto` for what the engine does best with the checkpoint.
        quantize: `none`.
        prefill_buckets: Compiled prefill lengths; None for 32 and 128.
        decode_buckets: Compiled decode widths; None for 1 and batch_size.
        logits: Compile the cache-free program that Triton ensembles serve, too.
        proof: Check the programs against transformers before the artifact appears.
    """

    model: str
    output: Path
    revision: str | None = None
    max_seq_len: int | None = None
    batch_size: int = 4
    tensor_parallel_size: int = 1
    engine: str = "onnxruntime"
    dtype: str = "auto"
    quantize: str = "none"
    prefill_buckets: tuple[int, ...] | None = None
    decode_buckets: tuple[int, ...] | None = None
    logits: bool = False
    proof: bool = True
