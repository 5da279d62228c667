"""Puts programs together from the libraries of their parts."""

from __future__ import annotations

from collections.abc import Mapping

from llmpack.artifact.library_program import LibraryCall, LibraryProgram, cache_len
from llmpack.graph.inductor.parts import block_name, head_name
from llmpack.graph.signature import Port, ProgramSignature, program_rows
from llmpack.plan.plan import CompilePlan, ProgramPlan


def library_path(part: str) -> str:
    """Returns where a part's library lies in the artifact."""
    return f"programs/{part}.so"


def build_program(
    plan: CompilePlan, program: ProgramPlan, constants: Mapping[str, Mapping[str, str]]
) -> LibraryProgram:
    """Returns a program as calls.

    Args:
        plan: Says which kind each layer is.
        program: What to build.
        constants: Part -> its constants, as `lower` found them; a block's name the first layer's kind, not a layer.
    """
    head = _call(head_name(program), constants)
    if program.kind == "head":
        return LibraryProgram(embed=None, blocks=[], head=head)
    blocks = []
    for index, layer in enumerate(plan.spec.layers):
        kind = plan.spec.layer_kinds.index(layer)
        blocks.append(_call(block_name(program, kind), constants, (f"blocks.{kind}.", f"layers.{index}.")))
    return LibraryProgram(embed=_call("embed", constants), blocks=blocks, head=head)


def _call(part: str, constants: Mapping[str, Mapping[str, str]], rename: tuple[str, str] = ("", "")) -> LibraryCall:
    """Returns the call of a part; tensor names that start with rename[0] start with rename[1] instead."""
    kind, layer = rename
    named = {
        name: layer + tensor.removeprefix(kind) if kind and tensor.startswith(kind) else tensor
        for name, tensor in constants[part].items()
    }
    return LibraryCall(library=library_path(part), constants=named)


def build_signature(plan: CompilePlan, program: ProgramPlan) -> ProgramSignature:
    """Returns the edge of a program: what its calls take and give together. The cache is changed in place."""
    hidden = Port("hidden_states", "float32", (program.bucket, plan.spec.hidden_size))
    if program.kind == "head":
        return ProgramSignature((hidden,), (Port("logits", "float32", (program.bucket, plan.spec.vocab_size)),))
    rows, tokens = program_rows(program)
    inputs = [Port(name, "int64", (rows, tokens)) for name in ("input_ids", "position_ids")]
    outputs = [Port("logits", "float32", (rows, plan.spec.vocab_size))]
    if program.kind == "prefill":
        outputs.append(hidden)
    for index, layer in enumerate(plan.spec.layers):
        heads, width = layer.attention.num_key_value_heads, layer.attention.head_dim
        shape = (rows, heads, cache_len(plan.max_seq_len), width)
        for part in ("key", "value"):
            inputs.append(Port(f"past_key_values.{index}.{part}", plan.dtype, shape))
            outputs.append(Port(f"present.{index}.{part}", plan.dtype, shape))
    return ProgramSignature(tuple(inputs), tuple(outputs))
