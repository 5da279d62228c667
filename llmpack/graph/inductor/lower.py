"""Compiles a part to a native library that holds no weights.

part --torch.export--> graph --AOTInductor--> C++ --g++--> library (code alone) + which constants it wants
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from llmpack.artifact.library_program import PACKED_ROWS, packed_name
from llmpack.errors import CompileError
from llmpack.graph.inductor import decode_attention, micro_gemm
from llmpack.graph.inductor.parts import Part, PartModule, build_decoder, list_parts
from llmpack.graph.inductor.toolchain import choose_march
from llmpack.plan.plan import CompilePlan

_OPTIONS: Mapping[str, Any] = {
    # Constants are folded and packed, and stay outside of the library.
    "freezing": True,
    "aot_inductor.package_constants_in_so": False,
    # The GEMM template wherever it applies (`_prefer_template`); nothing is left to measure, so nothing varies.
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "CPP,ATEN",
    # The machine that serves may have more cores than the one that compiles.
    "cpp.dynamic_threads": True,
    # Without debugging tables equal programs give equal bytes, and compile faster.
    "aot_inductor.enable_line_tables": False,
    "aot_inductor.enable_frame_pointer": False,
}
_MODULE_PREFIX = "decoder."  # The attribute under which PartModule holds the decoder.
_CONSTANT = re.compile(r'constants_info_\[(\d+)\]\.(name|shape|original_fqn) = ["{]([^"}]*)["}];')


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """A compiled part.

    Attributes:
        library: The shared object's bytes.
        constants: Name in the library -> the decoder's parameter; a matrix product's weight is wanted packed.
    """

    library: bytes
    constants: Mapping[str, str]


def lower(plan: CompilePlan, name: str, *, tied: bool) -> LoweredPart:
    """Returns a part of the plan, compiled. Takes seconds, most of them in the C++ compiler.

    Raises:
        CompileError: Inductor made something that the runtime could not feed.
    """
    decode_attention.register()
    micro_gemm.register()
    part = list_parts(plan, tied=tied)[name]
    exported = _export(plan, part, tied=tied)
    with tempfile.TemporaryDirectory() as folder, _prefer_template():
        package = Path(folder) / "part.pt2"
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(package), inductor_configs={**_OPTIONS, "cpp.march": choose_march()}
        )
        library, source = _read_package(package)
    return LoweredPart(library, _match_constants(source, exported, part))


def _export(plan: CompilePlan, part: Part, *, tied: bool) -> ExportedProgram:
    module = PartModule(build_decoder(plan, part, tied=tied), part).eval()
    with torch.no_grad():
        return torch.export.export(module, part.inputs, dynamic_shapes=(part.dynamic_shapes,), strict=False)


def _read_package(package: Path) -> tuple[bytes, str]:
    """Returns the shared object and the source of its wrapper."""
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        (library,) = (name for name in names if name.endswith(".so"))
        (wrapper,) = (name for name in names if name.endswith(".wrapper.cpp"))
        return archive.read(library), archive.read(wrapper).decode()


def _match_constants(source: str, exported: ExportedProgram, part: Part) -> dict[str, str]:
    """Returns the stored tensor behind each constant of a library.

    Constants that inductor left alone keep their parameter's name. The packed weights of products do not, but they are
    made in the order in which the products are computed; shapes are compared to be sure. The unpacked weights may be
    declared too; no code reads them.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in exported.state_dict.items()}
    products = _list_products(exported)
    expected = {name: (name, shape) for name, shape in shapes.items() if name not in products}
    packed = iter([(packed_name(name), _packed_shape(shapes[name])) for name in products])
    matched = {}
    for constant in _read_constants(source):
        if constant["original_fqn"] in products:
            continue
        stored, shape = expected.get(constant["original_fqn"]) or next(packed, ("", ()))
        if tuple(int(n) for n in constant["shape"].split(",") if n.strip()) != shape:
            raise _unexplained(part, constant)
        matched[constant["name"]] = stored.removeprefix(_MODULE_PREFIX)
    for missing, _ in packed:
        raise _unexplained(part, missing)
    return matched


def _read_constants(source: str) -> list[dict[str, str]]:
    """Returns name, shape and original_fqn of each constant that a wrapper declares, in order."""
    found: dict[int, dict[str, str]] = {}
    for index, field, value in _CONSTANT.findall(source):
        found.setdefault(int(index), {})[field] = value
    return [constant for _, constant in sorted(found.items())]


def _unexplained(part: Part, constant: object) -> CompileError:
    return CompileError(
        f"inductor did not compile {part.name} into constants that the runtime can feed",
        given=constant,
        next_step="Please report the model and this message; --engine onnxruntime does without inductor.",
    )


def _packed_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    rows, columns = shape
    return -(-rows // PACKED_ROWS), columns, PACKED_ROWS


def _list_products(exported: ExportedProgram) -> list[str]:
    """Returns the parameters that are a matrix product's weight, in the order of the products."""
    parameters = exported.graph_signature.inputs_to_parameters
    products = [node for node in exported.graph.nodes if node.target is torch.ops.aten.linear.default]
    return [parameters[node.args[1].name] for node in products]


@contextmanager
def _prefer_template() -> Iterator[None]:
    """Lets inductor use the C++ template wherever it offers one; products of two activations have none."""
    from torch._inductor import select_algorithm

    def prefer(choices: list[Any]) -> list[Any]:
        templates = [choice for choice in choices if not isinstance(choice, select_algorithm.ExternKernelCaller)]
        return templates or choices

    select_algorithm.add_preprocessing_fn(prefer)
    try:
        yield
    finally:
        select_algorithm.clear_preprocessing_fns()
