"""Native libraries without a C++ compiler: each part is computed by torch, from the very weights that were stored.

So every row goes through the lowering, the packing, the program files and the runner in a second; that the compiler
turns parts into libraries that do the same is shown on a few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from llmpack.artifact import requirements
from llmpack.artifact.library_program import LibraryCall, packed_name
from llmpack.graph.inductor import lower_parts
from llmpack.graph.inductor.lower import LoweredPart
from llmpack.graph.inductor.parts import Part, build_decoder, list_parts
from llmpack.plan import engine
from llmpack.plan.plan import CompilePlan
from llmpack.runtime import inductor_runner


@contextmanager
def eager_libraries() -> Iterator[None]:
    """Compiles to parts and loads parts, as long as it lasts."""
    parts: dict[str, tuple[CompilePlan, Part, bool]] = {}

    def lower_all(plan: CompilePlan, *, tied: bool, advance: Callable[[int], None]) -> dict[str, LoweredPart]:
        lowered = {}
        for name, part in list_parts(plan, tied=tied).items():
            parts[name] = (plan, part, tied)
            lowered[name] = LoweredPart(b"", constants_of(plan, part, tied=tied))
        return lowered

    def load(self: inductor_runner.Libraries, call: LibraryCall) -> Callable[..., Tensor]:
        plan, part, tied = parts[Path(call.library).stem]
        decoder = build_decoder(plan, part, tied=tied)
        for name, stored in call.constants.items():
            owner, _, attribute = name.rpartition(".")
            parameter = decoder.get_parameter(name)
            values = self._weights[stored]
            setattr(decoder.get_submodule(owner), attribute, nn.Parameter(unpack(values, parameter), False))
        return lambda *inputs: part.compute(decoder, *inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "find_obstacles", list)  # Neither a compiler nor AVX-512 is needed.
        patch.setattr(requirements, "find_cpu_problems", lambda _: [])
        patch.setattr(lower_parts, "lower_all", lower_all)
        patch.setattr(inductor_runner.Libraries, "load", load)
        yield


def constants_of(plan: CompilePlan, part: Part, *, tied: bool) -> dict[str, str]:
    constants = {}
    for name, parameter in build_decoder(plan, part, tied=tied).named_parameters():
        if name.startswith(part.prefixes):
            multiplied = parameter.dim() == 2 and not name.startswith("ropes.") and part.name != "embed"
            constants[name] = packed_name(name) if multiplied else name
    return constants


def unpack(stored: Tensor, parameter: Tensor) -> Tensor:
    """The inverse of `pack_tiles`."""
    if stored.shape == parameter.shape:
        return stored
    tiles, columns, rows = stored.shape
    if stored.dtype == torch.bfloat16:
        stored = stored.reshape(tiles, columns // 2, rows, 2).permute(0, 2, 1, 3)
    else:
        stored = stored.transpose(1, 2)
    return stored.reshape(tiles * rows, columns)[: parameter.shape[0]].contiguous()
