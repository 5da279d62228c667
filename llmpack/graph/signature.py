"""Names, dtypes and shapes at the edge of each program; every dimension is a number, but for two of `logits`.

prefill-T   T tokens of one slot        -> logits after one chosen token, hidden states of all
decode-B    one token of B slots        -> logits of each
head-N      N hidden states             -> logits of each (for the logprobs of a prompt)
logits      any rows of any length      -> logits of all tokens (for Triton ensembles)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmpack.plan.plan import CompilePlan, ProgramPlan

DtypeName = Literal["float32", "bfloat16", "int32", "int64"]


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output; -1 stands for a dimension of any size."""

    name: str
    dtype: DtypeName
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgramSignature:
    """Inputs and outputs in graph order, the cache tensors last; output cache i shares the buffer of input cache i."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def program_rows(program: ProgramPlan) -> tuple[int, int]:
    """Returns (B, T): slots and tokens per slot of a call."""
    return (1, program.bucket) if program.kind == "prefill" else (program.bucket, 1)


def build_signature(plan: CompilePlan, program: ProgramPlan) -> ProgramSignature:
    """Returns the edge of a program, with Hugging Face's and optimum's names."""
    if program.kind == "logits":
        return ProgramSignature(row_ports(), (Port("logits", "float32", (-1, -1, plan.spec.vocab_size)),))
    hidden = Port("hidden_states", "float32", (program.bucket, plan.spec.hidden_size))
    if program.kind == "head":
        return ProgramSignature((hidden,), (Port("logits", "float32", (program.bucket, plan.spec.vocab_size)),))
    rows, _ = program_rows(program)
    inputs, outputs = list(token_ports(program)), [Port("logits", "float32", (rows, plan.spec.vocab_size))]
    if program.kind == "prefill":
        inputs.append(Port("logits_index", "int64", (1,)))
        outputs.append(hidden)
    for index in range(len(plan.spec.layers)):
        past, present = cache_ports(plan, program, index)
        inputs += past
        outputs += present
    return ProgramSignature(tuple(inputs), tuple(outputs))


def token_ports(program: ProgramPlan) -> tuple[Port, ...]:
    """Returns the inputs that say which tokens stand where (see `operators.SlotState`)."""
    rows, tokens = program_rows(program)
    return (
        Port("input_ids", "int64", (rows, tokens)),
        Port("position_ids", "int64", (rows, tokens)),
        Port("seqlens_k", "int32", (rows,)),
        Port("total_sequence_length", "int32", (1,)),
    )


def row_ports() -> tuple[Port, Port]:
    """Returns the inputs of `logits`: [B, T] tokens, and which of them are real (1) and which padding (0)."""
    return Port("input_ids", "int64", (-1, -1)), Port("attention_mask", "int64", (-1, -1))


def cache_ports(plan: CompilePlan, program: ProgramPlan, layer: int) -> tuple[list[Port], list[Port]]:
    """Returns the (past, present) keys and values of one layer, each [B, K, S, E]."""
    attention = plan.spec.layers[layer].attention
    shape = (program_rows(program)[0], attention.num_key_value_heads, plan.max_seq_len, attention.head_dim)
    past = [Port(f"past_key_values.{layer}.{part}", "float32", shape) for part in ("key", "value")]
    return past, [Port(f"present.{layer}.{part}", "float32", shape) for part in ("key", "value")]
