"""The pieces that programs are stitched from, and the one torch module that computes them all.

    embed ----> block of kind k, once per layer ----> finish

A program of 30 equal layers needs three pieces. All pieces of all programs are traced in a single export, so the time
to compile grows neither with depth nor, noticeably, with the number of buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from llmpack.graph.decoder import Decoder
from llmpack.graph.operators.interface import SlotState
from llmpack.graph.signature import Port, cache_ports, program_rows, token_ports
from llmpack.plan.plan import CompilePlan, ProgramPlan

Outputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a program.

    Attributes:
        program: Whose part.
        part: `embed`, `block-K` or `finish`.
        inputs: What it reads.
        outputs: Names of what it returns.
        compute: Takes the decoder and the inputs.
    """

    program: ProgramPlan
    part: str
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    compute: Callable[..., Outputs]

    def input_name(self, name: str) -> str:
        """Returns the name of an input in the export of all pieces."""
        return f"{self.program.name}/{self.part}/in/{name}"

    def output_name(self, name: str) -> str:
        """Returns the name of an output in the export of all pieces."""
        return f"{self.program.name}/{self.part}/out/{name}"


class PieceModule(nn.Module):
    """Computes every piece from inputs of its own; nothing connects them.

    Args:
        decoder: Owns the parameters.
        pieces: What to compute, in order.
    """

    def __init__(self, decoder: Decoder, pieces: tuple[Piece, ...]) -> None:
        super().__init__()
        self.decoder = decoder
        self.pieces = pieces

    def forward(self, inputs: list[list[Tensor]]) -> list[Tensor]:
        """Takes the inputs of each piece; returns the outputs of all, one after the other."""
        results: list[Tensor] = []
        for piece, tensors in zip(self.pieces, inputs, strict=True):
            results.extend(piece.compute(self.decoder, *tensors))
        return results


def list_pieces(plan: CompilePlan) -> tuple[Piece, ...]:
    """Returns the pieces of every program of a plan that works on slots."""
    slot_programs = [program for program in plan.programs if program.kind != "logits"]
    return tuple(piece for program in slot_programs for piece in _program_pieces(plan, program))


def _program_pieces(plan: CompilePlan, program: ProgramPlan) -> list[Piece]:
    if program.kind == "head":
        return [Piece(program, "finish", (_hidden(plan, program, "hidden_states"),), ("logits",), _head)]
    embed = Piece(program, "embed", token_ports(program)[:2], ("x",), _embed)
    return [embed, *_block_pieces(plan, program), _finish_piece(plan, program)]


def _block_pieces(plan: CompilePlan, program: ProgramPlan) -> list[Piece]:
    pieces = []
    for kind, layer in enumerate(plan.spec.layer_kinds):
        past, _ = cache_ports(plan, program, plan.spec.layers.index(layer))
        cache = (Port("past_key", "float32", past[0].shape), Port("past_value", "float32", past[1].shape))
        inputs = (_hidden(plan, program, "x"), *token_ports(program)[1:], *cache)
        pieces.append(Piece(program, f"block-{kind}", inputs, ("x", "key", "value"), partial(_block, kind=kind)))
    return pieces


def _finish_piece(plan: CompilePlan, program: ProgramPlan) -> Piece:
    x = _hidden(plan, program, "x")
    if program.kind == "decode":
        return Piece(program, "finish", (x,), ("logits",), _finish_decode)
    inputs = (x, Port("logits_index", "int64", (1,)))
    return Piece(program, "finish", inputs, ("logits", "hidden_states"), _finish_prefill)


def _hidden(plan: CompilePlan, program: ProgramPlan, name: str) -> Port:
    rows, tokens = program_rows(program)
    return Port(name, "float32", (rows * tokens, plan.spec.hidden_size))


def _embed(decoder: Decoder, input_ids: Tensor, position_ids: Tensor) -> Outputs:
    return (decoder.embed(input_ids, position_ids),)


def _block(decoder: Decoder, x: Tensor, *rest: Tensor, kind: int) -> Outputs:
    position_ids, seqlens_k, total_sequence_length, past_key, past_value = rest
    state = SlotState(position_ids, (seqlens_k, total_sequence_length))
    x, (key, value) = decoder.block(kind, x, (past_key, past_value), state)
    return x, key, value


def _finish_prefill(decoder: Decoder, x: Tensor, logits_index: Tensor) -> Outputs:
    hidden = decoder.normalise(x)
    return decoder.head(torch.index_select(hidden, 0, logits_index)), hidden


def _finish_decode(decoder: Decoder, x: Tensor) -> Outputs:
    return (decoder.head(decoder.normalise(x)),)


def _head(decoder: Decoder, hidden_states: Tensor) -> Outputs:
    return (decoder.head(hidden_states),)
