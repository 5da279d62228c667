"""The parts that programs are called together from, as torch modules.

embed ----> block of kind k, once per layer ----> head

One `embed` serves every program; a block is compiled for each kind of layer and each program; a head for each number
of rows. So the number of libraries does not depend on the depth of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.export import Dim

from llmpack.artifact.library_program import LIVE_STEP, cache_len, live_len
from llmpack.graph.decoder import Decoder
from llmpack.graph.operators import inductor
from llmpack.graph.operators.interface import SlotState
from llmpack.graph.signature import program_rows
from llmpack.plan.plan import CompilePlan, ProgramPlan

DynamicShapes = tuple[dict[int, Dim] | None, ...]
_EMBED_ROWS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """What one library computes.

    Attributes:
        name: File stem of the library.
        prefixes: Which parameters of the decoder it reads.
        inputs: Examples.
        dynamic_shapes: For torch.export; None for an input of fixed shape.
        compute: Takes the decoder and the inputs.
    """

    name: str
    prefixes: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    dynamic_shapes: DynamicShapes
    compute: Callable[..., Tensor]


class PartModule(nn.Module):
    """A part with the decoder's parameters."""

    def __init__(self, decoder: Decoder, part: Part) -> None:
        super().__init__()
        self.decoder = decoder
        self.part = part

    def forward(self, *inputs: Tensor) -> Tensor:
        """Computes the part."""
        return self.part.compute(self.decoder, *inputs)


def list_parts(plan: CompilePlan, *, tied: bool) -> dict[str, Part]:
    """Returns every part of the plan's programs by name."""
    parts = [_embed_part()]
    for program in plan.programs:
        if program.kind != "head":
            parts += [_block_part(plan, program, kind) for kind in range(len(plan.spec.layer_kinds))]
        parts.append(_head_part(plan, head_rows(program), tied=tied))
    return {part.name: part for part in parts}


def block_name(program: ProgramPlan, kind: int) -> str:
    """Returns the name of a program's block of one kind."""
    return f"{program.name}.block-{kind}"


def head_name(program: ProgramPlan) -> str:
    """Returns the name of a program's head."""
    return f"head-{head_rows(program)}"


def head_rows(program: ProgramPlan) -> int:
    """Returns the rows whose logits a program computes: a prefill wants those after one token alone."""
    return 1 if program.kind == "prefill" else program.bucket


def build_decoder(plan: CompilePlan, part: Part, *, tied: bool) -> Decoder:
    """Returns a decoder that holds just the part's parameters, with arbitrary values.

    Inductor packs constants while it compiles, so they must exist. They must also differ: equal ones would be merged.
    """
    with torch.device("meta"):
        decoder = Decoder(plan.spec, plan.max_seq_len, inductor, tied=tied)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in list(decoder.named_parameters()):
        shape = parameter.shape if name.startswith(part.prefixes) else (0,)
        values = torch.randn(shape, generator=generator).to(_dtype(plan, name, len(parameter.shape)))
        owner, _, attribute = name.rpartition(".")
        setattr(decoder.get_submodule(owner), attribute, nn.Parameter(values, requires_grad=False))
    return decoder.eval()


def _dtype(plan: CompilePlan, name: str, num_axes: int) -> torch.dtype:
    matrix = num_axes == 2 and not name.startswith("ropes.")
    return torch.bfloat16 if matrix and plan.dtype == "bfloat16" else torch.float32


def _embed_part() -> Part:
    ids = torch.zeros(_EMBED_ROWS, dtype=torch.int64)
    rows = {0: Dim("rows", min=2)}
    return Part("embed", ("embedding.", "positions."), (ids, ids.clone()), (rows, rows), _embed)


def _block_part(plan: CompilePlan, program: ProgramPlan, kind: int) -> Part:
    attention = plan.spec.layer_kinds[kind].attention
    rows, tokens = program_rows(program)
    dtype = torch.bfloat16 if plan.dtype == "bfloat16" else torch.float32
    cache = torch.zeros(
        (rows, attention.num_key_value_heads, cache_len(plan.max_seq_len), attention.head_dim), dtype=dtype
    )
    longest = live_len(plan.max_seq_len)
    x = torch.zeros(rows * tokens, plan.spec.hidden_size)
    position_ids = torch.zeros(rows, tokens, dtype=torch.int64)
    inputs: tuple[Tensor, ...] = (x, position_ids, cache, cache.clone())
    dynamic_shapes: DynamicShapes = (None, None, None, None)
    if tokens > 1:
        inputs += (torch.arange(min(longest, 4 * LIVE_STEP)),)
        dynamic_shapes += (_live_shape(longest // LIVE_STEP),)
    return Part(
        block_name(program, kind),
        (f"blocks.{kind}.", *([] if attention.rope is None else [f"ropes.{attention.rope}."])),
        inputs,
        dynamic_shapes,
        partial(_block, kind=kind),
    )


def _live_shape(num_steps: int) -> dict[int, Dim] | None:
    """Returns how far a prefill may read: multiples of LIVE_STEP, or fixed where there is one only."""
    return None if num_steps == 1 else {0: LIVE_STEP * Dim("live_steps", min=1, max=num_steps)}


def _head_part(plan: CompilePlan, rows: int, *, tied: bool) -> Part:
    weights = "embedding." if tied else "lm_head."
    x = torch.zeros(rows, plan.spec.hidden_size)
    return Part(f"head-{rows}", ("final_norm.", weights), (x,), (None,), _head)


def _embed(decoder: Decoder, input_ids: Tensor, position_ids: Tensor) -> Tensor:
    return decoder.embed(input_ids, position_ids)


def _block(decoder: Decoder, x: Tensor, position_ids: Tensor, *rest: Tensor, kind: int) -> Tensor:
    keys, values, *live_positions = rest
    x, _ = decoder.block(kind, x, (keys, values), SlotState(position_ids, tuple(live_positions)))
    return x


def _head(decoder: Decoder, x: Tensor) -> Tensor:
    return decoder.head(decoder.normalise(x))
