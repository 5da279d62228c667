"""Streams a checkpoint's tensors into the artifact's weights file, one piece at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmpack.architectures.arch_spec import ArchSpec
from llmpack.architectures.rope import build_tables
from llmpack.architectures.spec import DecoderSpec
from llmpack.architectures.weights import (
    EMBEDDING,
    LM_HEAD,
    Parameter,
    Piece,
    list_parameters,
    rearrange,
)
from llmpack.artifact.weights_file import StoredTensor, lay_out, open_weights_writer
from llmpack.checkpoint.weights import WeightSource
from llmpack.compiler.storage import list_forms, store
from llmpack.errors import CorruptCheckpoint
from llmpack.plan.plan import CompilePlan

_CHUNK_ELEMENTS = 1 << 23  # 32 MB of float32 at a time, so that a large embedding needs no second copy.

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Which checkpoint tensor becomes which parameter.

    Attributes:
        parameters: In storage order.
        names: Row name of a piece -> the checkpoint's name for it.
        tied: The head reads the embedding.
    """

    parameters: tuple[Parameter, ...]
    names: Mapping[str, str]
    tied: bool

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, the shared head counted once."""
        return sum(int(np.prod(p.shape, dtype=np.int64)) for p in self.parameters)


def plan_weights(row: ArchSpec, spec: DecoderSpec, source: WeightSource, config: Mapping[str, Any]) -> WeightPlan:
    """Returns where every parameter comes from.

    The tensors decide whether the head is tied: a head in the checkpoint is used unless it equals the embedding. A
    missing one means tied, unless config.json itself says that it is not.

    Raises:
        CorruptCheckpoint: Tensors are missing, left over or of another shape; every one is named.
    """
    available = {name: _strip(name, row.prefix) for name in source.names()}
    by_row_name = {stripped: name for name, stripped in available.items()}
    tied = _is_tied(row, source, by_row_name, config)
    parameters = tuple(list_parameters(spec, row.weights, tied=tied))
    wanted = {piece.name for parameter in parameters for piece in parameter.pieces}
    if tied:
        by_row_name.pop(row.weights[LM_HEAD][0].name, None)
    leftover = [by_row_name[n] for n in by_row_name.keys() - wanted if not _is_harmless(row, by_row_name[n])]
    problems = [f"missing: {row.prefix}{name}" for name in sorted(wanted - by_row_name.keys())]
    problems += [f"left over: {name}" for name in sorted(leftover)]
    plan = WeightPlan(parameters, by_row_name, tied)
    problems += [] if problems else _shape_problems(plan, source)
    if problems:
        raise CorruptCheckpoint(
            f"the tensors do not fit `{row.model_type}` as config.json describes it:\n  " + "\n  ".join(problems)
        )
    return plan


def _strip(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)


def _is_tied(row: ArchSpec, source: WeightSource, names: Mapping[str, str], config: Mapping[str, Any]) -> bool:
    head, embedding = (row.weights[key][0].name for key in (LM_HEAD, EMBEDDING))
    if head not in names:
        return config.get("tie_word_embeddings") is not False
    if embedding not in names or source.info(names[head]) != source.info(names[embedding]):
        return False
    return bool(np.array_equal(source.read(names[head]), source.read(names[embedding])))


def _is_harmless(row: ArchSpec, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in row.leftovers)


def _shape_problems(plan: WeightPlan, source: WeightSource) -> list[str]:
    """Compares element counts and the axes that concatenation keeps."""
    problems = []
    for parameter in plan.parameters:
        shapes = [_stored_shape(piece, source.info(plan.names[piece.name]).shape) for piece in parameter.pieces]
        rows = sum(shape[0] for shape in shapes if shape)
        if any(shape[1:] != parameter.shape[1:] for shape in shapes) or rows != parameter.shape[0]:
            given = ", ".join(
                f"{plan.names[p.name]} {list(source.info(plan.names[p.name]).shape)}" for p in parameter.pieces
            )
            problems.append(f"shape: {given} cannot make {parameter.name} {list(parameter.shape)}")
    return problems


def _stored_shape(piece: Piece, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[::-1] if piece.transform == "transpose" else shape


def lay_out_weights(weights: WeightPlan, plan: CompilePlan) -> tuple[bytes, dict[str, StoredTensor]]:
    """Returns the head of the weights file and the place of every parameter and rope table in it."""
    forms = list_forms(weights.parameters, plan, tied=weights.tied)
    tensors = [(form.name, form.shape, form.dtype) for form in forms]
    for name, rope in plan.spec.ropes.items():
        shape = (plan.max_seq_len, rope.rotary_dim // 2)
        tensors += [(f"ropes.{name}.{part}", shape, "float32") for part in ("cos", "sin")]
    return lay_out(tensors)


def write_weights(
    path: Path,
    head: bytes,
    stored: dict[str, StoredTensor],
    inputs: tuple[WeightPlan, CompilePlan, WeightSource],
    advance: Callable[[int], None],
) -> None:
    """Writes the weights file.

    Args:
        path: File to create.
        head: From `lay_out_weights`.
        stored: From `lay_out_weights`.
        inputs: What to write and where it comes from.
        advance: Called with the number of bytes just written.
    """
    weights, plan, source = inputs
    num_heads = plan.spec.layers[0].attention.num_heads
    with open_weights_writer(path, head, stored) as writer:
        for form in list_forms(weights.parameters, plan, tied=weights.tied):
            tensors = (
                rearrange(piece, source.read(weights.names[piece.name]), num_heads) for piece in form.parameter.pieces
            )
            for numbers in store(form, _chunks(tensors)):
                writer.write(form.name, numbers)
            advance(stored[form.name].size_bytes)
        for name, rope in plan.spec.ropes.items():
            cos, sin = build_tables(rope, plan.max_seq_len)
            writer.write(f"ropes.{name}.cos", cos)
            writer.write(f"ropes.{name}.sin", sin)


def _chunks(tensors: Iterable[Array]) -> Iterator[Array]:
    for tensor in tensors:
        rows = max(1, _CHUNK_ELEMENTS // max(1, int(np.prod(tensor.shape[1:], dtype=np.int64))))
        for start in range(0, tensor.shape[0], rows):
            yield tensor[start : start + rows]
