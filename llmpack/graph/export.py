"""Exports programs to ONNX models that hold no weights: every parameter points into the artifact's one weights file.

torch.export traces under fake tensors, so exporting allocates nothing the size of the model.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx_ir as ir
import torch
from onnxscript.optimizer import optimize_ir
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from llmpack.artifact.weights_file import StoredTensor
from llmpack.graph.decoder import Decoder
from llmpack.graph.operators import onnx, whole_rows
from llmpack.graph.operators.interface import Operators
from llmpack.graph.pieces import Piece, PieceModule, list_pieces
from llmpack.graph.row_pieces import list_row_pieces
from llmpack.graph.signature import Port, build_signature
from llmpack.graph.stitch import ExportedPiece, Stitcher, cut_pieces
from llmpack.plan.plan import CompilePlan, ProgramPlan

_MODULE_PREFIX = "decoder."  # The attribute under which PieceModule holds the decoder.
# Unlike any dimension of a model, and unlike 0 and 1, which torch.export takes for fixed.
_FREE_SIZES = (3, 5)
_TORCH_DTYPES = {"float32": torch.float32, "int32": torch.int32, "int64": torch.int64}


class Exporter:
    """Exports the pieces of a plan once; programs are then put together from them.

    Args:
        plan: Shapes and decoder.
        tied: The head reads the embedding.
        stored: Where each parameter lies in the weights file.
        weights_path: The weights file relative to the artifact, as the ONNX external-data location.
    """

    def __init__(self, plan: CompilePlan, *, tied: bool, stored: Mapping[str, StoredTensor], weights_path: str) -> None:
        self._plan = plan
        self._stored = stored
        self._weights_path = weights_path
        self._models: list[ir.Model] = []  # Kept: the pieces' values belong to their graphs.
        self._pieces: dict[tuple[str, str], ExportedPiece] = {}
        lowerings: list[tuple[tuple[Piece, ...], Operators, int]] = [
            (list_pieces(plan), onnx, onnx.OPSET_VERSION),
            (list_row_pieces(plan), whole_rows, whole_rows.OPSET_VERSION),
        ]
        for pieces, operators, opset_version in lowerings:
            if pieces:
                decoder = partial(Decoder, plan.spec, plan.max_seq_len, operators, tied=tied)
                with _quiet_torch():
                    self._models.append(_export_pieces(decoder, pieces, opset_version))
                self._pieces |= cut_pieces(self._models[-1], pieces)

    def build(self, program: ProgramPlan) -> ir.Model:
        """Returns a program as an ONNX model whose parameters are external."""
        model = Stitcher(self._plan, program, build_signature(self._plan, program), self._pieces).build()
        for name, value in model.graph.initializers.items():
            if value.const_value is None:
                value.const_value = self._external(self._stored[name])
        return model

    def _external(self, stored: StoredTensor) -> ir.ExternalTensor:
        return ir.ExternalTensor(
            self._weights_path,
            stored.offset,
            stored.size_bytes,
            ir.DataType.FLOAT,
            shape=ir.Shape(stored.shape),
            name=stored.name,
        )


def write_program(model: ir.Model, path: Path) -> None:
    """Writes the ONNX file; equal models give equal bytes."""
    path.write_bytes(ir.serde.serialize_model(model).SerializeToString(deterministic=True))


def _export_pieces(build_decoder: Callable[[], Decoder], pieces: tuple[Piece, ...], opset_version: int) -> ir.Model:
    """Returns one model that computes every piece from inputs of its own."""
    fake_mode = FakeTensorMode()
    with fake_mode:
        module = PieceModule(build_decoder(), pieces).eval()
        inputs = [[_fake(port) for port in piece.inputs] for piece in pieces]
    free = torch.export.Dim.DYNAMIC
    dynamic_shapes = [
        [{axis: free for axis, dim in enumerate(port.shape) if dim == -1} for port in piece.inputs] for piece in pieces
    ]
    exported = torch.export.export(module, (inputs,), dynamic_shapes=(dynamic_shapes,), strict=False)
    program = torch.onnx.export(
        exported,
        (),
        input_names=[piece.input_name(port.name) for piece in pieces for port in piece.inputs],
        output_names=[piece.output_name(name) for piece in pieces for name in piece.outputs],
        opset_version=opset_version,
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    assert program is not None
    _name_parameters(program.model)
    optimize_ir(program.model)
    return program.model


def _fake(port: Port) -> Tensor:
    shape = [_FREE_SIZES[axis] if dim == -1 else dim for axis, dim in enumerate(port.shape)]
    return torch.empty(shape, dtype=_TORCH_DTYPES[port.dtype])


def _name_parameters(model: ir.Model) -> None:
    """Gives parameters their decoder's names and takes away their fake values, which no pass may read."""
    for name, value in list(model.graph.initializers.items()):
        if name.startswith(_MODULE_PREFIX):
            value.const_value = None
            value.name = name.removeprefix(_MODULE_PREFIX)


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Silences the exporters' notes (optional packages, parameters without values) and their own deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
