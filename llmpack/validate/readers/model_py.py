"""What the syntax tree of a Triton model.py says about tensors, `finalize` and secrets.

Source: `triton_python_backend_utils` of Triton's Python backend.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from llmpack.validate.model import Location, ModelPy, Named
from llmpack.validate.readers.python_secrets import find_secrets
from llmpack.validate.readers.python_text import PythonText
from llmpack.validate.readers.source_text import read_source


def read_model_py(path: Path) -> ModelPy:
    """The facts of `path`, which is parsed and never run.

    Raises:
        UnreadableConfig: Not readable as Python.
    """
    python = PythonText(read_source(path))
    reads = list(_reads(python))
    writes, writes_are_complete = _writes(python)
    return ModelPy(
        path=str(path),
        reads=tuple(named for named in reads if named),
        writes=writes,
        reads_are_complete=all(named is not None for named in reads),
        writes_are_complete=writes_are_complete,
        finalize_location=_finalize_location(python),
        secrets=tuple(find_secrets(python)),
    )


def _reads(python: PythonText) -> Iterator[Named | None]:
    """Names of the tensors that are read; None for a computed one."""
    for name, call in python.calls():
        if name == "get_input_tensor_by_name":
            argument = _argument(call, 1, "name")
            yield _named(python, argument) if argument is not None else None


def _writes(python: PythonText) -> tuple[tuple[Named, ...], bool]:
    """Names of the tensors that are answered with, and whether those are all."""
    calls = list(python.calls())
    asks_other_models = any(name == "InferenceRequest" for name, _ in calls)
    roots: list[ast.AST] = [call for name, call in calls if name == "InferenceResponse"]
    tensors = [call for _, call in calls if _is_tensor(call)]
    if asks_other_models:  # tensors may be questions to another model: only those inside an answer are certain
        inside = {id(node) for root in roots for node in ast.walk(root)}
        tensors = [call for call in tensors if id(call) in inside]
    names = [_named(python, argument) if (argument := _argument(call, 0, "name")) else None for call in tensors]
    return tuple(name for name in names if name), None not in names and not asks_other_models and bool(names)


def _is_tensor(call: ast.Call) -> bool:
    """Whether the call is `pb_utils.Tensor(...)` or `pb_utils.Tensor.from_dlpack(...)`, not torch's."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "from_dlpack":
        function = function.value
    if isinstance(function, ast.Attribute):
        return function.attr == "Tensor" and not (isinstance(function.value, ast.Name) and function.value.id == "torch")
    return isinstance(function, ast.Name) and function.id == "Tensor"


def _argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    if len(call.args) > index:
        return call.args[index]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _named(python: PythonText, node: ast.expr) -> Named | None:
    value, is_known = python.value(node)
    if not is_known or not isinstance(value, str):
        return None
    span = python.span(node) if isinstance(node, ast.Constant) else None
    return Named(value, python.location(node), span)


def _finalize_location(python: PythonText) -> Location | None:
    """Where a `finalize` is defined that cannot be called with `self` alone."""
    for node in python.nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "finalize":
            arguments = node.args
            num_required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
            if num_required > 1 or None in arguments.kw_defaults:
                return python.location(node, "finalize")
    return None
