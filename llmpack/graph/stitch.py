"""Puts a program's graph together from exported pieces, repeating the block of each kind once per layer.

input_ids --> [embed] --x--> [block] --x--> [block] --x--> ... --x--> [finish] --> logits
                              ^   |          ^   |
                           past present   past present
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from llmpack.graph.operators import onnx, whole_rows
from llmpack.graph.pieces import Piece
from llmpack.graph.signature import Port, ProgramSignature
from llmpack.plan.plan import CompilePlan, ProgramPlan

PRODUCER = "llmpack"
# Source: onnx/docs/Versioning.md; the file format is the first that knows the opset.
_FORMATS = {"logits": (whole_rows.OPSET_VERSION, 8)}
_SLOT_FORMAT = (onnx.OPSET_VERSION, 11)
FREE_DIMS = ("batch", "sequence")
"""Names of the leading dimensions where they are of any size."""
_DTYPES = {"float32": ir.DataType.FLOAT, "int32": ir.DataType.INT32, "int64": ir.DataType.INT64}
_BLOCK_PARAMETER = re.compile(r"^blocks\.\d+\.")


@dataclass(frozen=True, slots=True)
class ExportedPiece:
    """The nodes of a piece in order, between its input and output values."""

    nodes: tuple[ir.Node, ...]
    inputs: Mapping[str, ir.Value]
    outputs: Mapping[str, ir.Value]


def cut_pieces(model: ir.Model, pieces: Iterable[Piece]) -> dict[tuple[str, str], ExportedPiece]:
    """Returns the exported pieces by (program name, part): each is what its outputs depend on."""
    inputs = {value.name: value for value in model.graph.inputs}
    outputs = {value.name: value for value in model.graph.outputs}
    order = {node: index for index, node in enumerate(model.graph)}
    cut = {}
    for piece in pieces:
        results = {name: outputs[piece.output_name(name)] for name in piece.outputs}
        nodes = sorted(_ancestors(results.values()), key=order.__getitem__)
        given = {port.name: inputs[piece.input_name(port.name)] for port in piece.inputs}
        cut[piece.program.name, piece.part] = ExportedPiece(tuple(nodes), given, results)
    return cut


def _ancestors(values: Iterable[ir.Value]) -> set[ir.Node]:
    found: set[ir.Node] = set()
    pending = [value.producer() for value in values]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [value.producer() for value in node.inputs if value is not None]
    return found


class Stitcher:
    """Builds one program.

    Args:
        plan: Says which kind each layer is.
        program: What to build.
        signature: Its inputs and outputs.
        pieces: From `cut_pieces`.
    """

    def __init__(
        self,
        plan: CompilePlan,
        program: ProgramPlan,
        signature: ProgramSignature,
        pieces: Mapping[tuple[str, str], ExportedPiece],
    ) -> None:
        self._plan = plan
        self._program = program
        self._signature = signature
        self._pieces = pieces
        self._values = {port.name: _new_value(port) for port in signature.inputs}
        self._initializers: dict[str, ir.Value] = {}
        self._nodes: list[ir.Node] = []

    def build(self) -> ir.Model:
        """Returns the model; parameters have no values yet, constants have theirs."""
        if self._program.kind != "head":
            self._place("embed", "embed", {})
            for index, layer in enumerate(self._plan.spec.layers):
                self._place_layer(index, self._plan.spec.layer_kinds.index(layer))
        self._place("finish", "finish", {})
        opset_version, ir_version = _FORMATS.get(self._program.kind, _SLOT_FORMAT)
        graph = ir.Graph(
            inputs=[self._values[port.name] for port in self._signature.inputs],
            outputs=[self._output(port) for port in self._signature.outputs],
            nodes=self._nodes,
            initializers=list(self._initializers.values()),
            opset_imports={"": opset_version, "com.microsoft": 1},
            name=self._program.name,
        )
        return ir.Model(graph, ir_version=ir_version, producer_name=PRODUCER)

    def _place_layer(self, index: int, kind: int) -> None:
        past = {f"past_{part}": f"past_key_values.{index}.{part}" for part in ("key", "value")}
        present = {part: f"present.{index}.{part}" for part in ("key", "value")}
        self._place(f"block-{kind}", f"layers.{index}", {**past, **present})

    def _place(self, part: str, scope: str, names: Mapping[str, str]) -> None:
        """Copies a piece's nodes; its ports are values of the program, under another name where `names` says so."""
        piece = self._pieces[self._program.name, part]
        copies: dict[ir.Value, ir.Value] = {
            value: self._values[names.get(name, name)] for name, value in piece.inputs.items()
        }
        for node in piece.nodes:
            inputs = [None if value is None else self._copy(value, copies, scope) for value in node.inputs]
            copy = ir.Node(
                node.domain,
                node.op_type,
                inputs,
                list(node.attributes.values()),
                num_outputs=len(node.outputs),
                name=f"{scope}/{node.op_type}_{len(self._nodes)}",
            )
            for old, new in zip(node.outputs, copy.outputs, strict=True):
                new.name, new.type, new.shape = f"{scope}/{old.name}", old.type, old.shape
                copies[old] = new
            self._nodes.append(copy)
        for name, value in piece.outputs.items():
            self._values[names.get(name, name)] = copies[value]

    def _copy(self, value: ir.Value, copies: Mapping[ir.Value, ir.Value], scope: str) -> ir.Value:
        """Returns the program's value for a piece's value: an earlier copy, a parameter of this layer or a constant."""
        if value in copies:
            return copies[value]
        assert value.name is not None and value.is_initializer(), f"{value} comes from outside its piece"
        name = _BLOCK_PARAMETER.sub(f"{scope}.", value.name)
        if name not in self._initializers:
            self._initializers[name] = ir.Value(
                name=name, shape=value.shape, type=value.type, const_value=value.const_value
            )
        return self._initializers[name]

    def _output(self, port: Port) -> ir.Value:
        value = self._values[port.name]
        planned = _shape(port)
        assert value.shape is not None and len(value.shape) == len(planned), f"{port.name} is {value.shape}"
        for given, dim in zip(value.shape, planned, strict=True):
            assert given == dim or not isinstance(dim, int), f"{port.name} is {value.shape}, planned {port.shape}"
        value.name, value.shape = port.name, planned
        return value


def _new_value(port: Port) -> ir.Value:
    return ir.Value(name=port.name, shape=_shape(port), type=ir.TensorType(_DTYPES[port.dtype]))


def _shape(port: Port) -> ir.Shape:
    """The port's shape; names stand for dimensions of any size."""
    return ir.Shape([FREE_DIMS[axis] if dim == -1 else dim for axis, dim in enumerate(port.shape)])
