"""The pieces of the program `logits`: whole rows of any number and length, without a cache.

    input_ids, attention_mask --> embed --x--> block of kind k, once per layer --x--> finish --> logits

Its two leading dimensions are free, alone among all programs. A Triton ensemble passes prompts of any length through
it, and a fixed length would compute, and answer with, the longest row for every prompt: T * V numbers, hundreds of MB.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from llmpack.graph.decoder import Decoder
from llmpack.graph.operators.interface import SlotState
from llmpack.graph.pieces import Outputs, Piece
from llmpack.graph.signature import Port, row_ports
from llmpack.plan.plan import CompilePlan, ProgramPlan


def list_row_pieces(plan: CompilePlan) -> tuple[Piece, ...]:
    """Returns the pieces of the program `logits`; none where the plan has no such program."""
    return tuple(piece for program in plan.programs if program.kind == "logits" for piece in _pieces_of(plan, program))


def _pieces_of(plan: CompilePlan, program: ProgramPlan) -> list[Piece]:
    input_ids, attention_mask = row_ports()
    x = Port("x", "float32", (-1, -1, plan.spec.hidden_size))
    position_ids = Port("position_ids", "int64", (-1, -1))
    blocks = [
        Piece(program, f"block-{kind}", (x, attention_mask, position_ids), ("x",), partial(_block, kind=kind))
        for kind in range(len(plan.spec.layer_kinds))
    ]
    embed = Piece(program, "embed", (input_ids, attention_mask), ("x", "position_ids"), _embed)
    return [embed, *blocks, Piece(program, "finish", (x,), ("logits",), _finish)]


def _embed(decoder: Decoder, input_ids: Tensor, attention_mask: Tensor) -> Outputs:
    """Positions count real tokens, as transformers' `generate` does, so that padding on the left changes nothing."""
    position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)
    x = decoder.embed(input_ids, position_ids)
    return x.reshape(*input_ids.shape, x.shape[-1]), position_ids


def _block(decoder: Decoder, x: Tensor, attention_mask: Tensor, position_ids: Tensor, *, kind: int) -> Outputs:
    state = SlotState(position_ids, (attention_mask,))
    after, _ = decoder.block(kind, _flatten(x), (), state)
    return (after.reshape(x.shape),)


def _finish(decoder: Decoder, x: Tensor) -> Outputs:
    logits = decoder.head(decoder.normalise(_flatten(x)))
    return (logits.reshape(x.shape[0], x.shape[1], logits.shape[-1]),)


def _flatten(x: Tensor) -> Tensor:
    """[B, T, D] -> [B * T, D]."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2])
