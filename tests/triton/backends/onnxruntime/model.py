"""Stands in for Triton's C++ onnxruntime backend, which no package index has, so that its configs load unchanged.

A python-based backend of that name. It refuses what the real one refuses: tensors that the graph does not have, has and
the config lacks, or has with another rank, shape or type. It computes each request by itself.

Source: onnxruntime_backend, README and `src/onnxruntime.cc` (`ValidateInputs`, `ValidateOutputs`), release 24.10.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnxruntime as ort
import triton_python_backend_utils as pb_utils

DEFAULT_FILENAME = "model.onnx"
THREADS = "intra_op_thread_count"
TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(double)": "TYPE_FP64",
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(string)": "TYPE_STRING",
    "tensor(uint8)": "TYPE_UINT8",
}


class TritonPythonModel:
    """The graph that the config names, in the version directory."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(config["parameters"].get(THREADS, {"string_value": "0"})["string_value"])
        path = Path(pb_utils.get_model_dir(), config["default_model_filename"] or DEFAULT_FILENAME)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        is_batched = config["max_batch_size"] > 0
        check_tensors("input", config["input"], inputs, is_batched=is_batched)
        check_tensors("output", config["output"], outputs, is_batched=is_batched)
        missing = {tensor.name for tensor in inputs} - {tensor["name"] for tensor in config["input"]}
        if missing:
            raise refusal(f"model expects {len(inputs)} inputs, the configuration lacks {', '.join(sorted(missing))}")
        self._outputs = [tensor["name"] for tensor in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        feeds = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        try:
            values = self._session.run(self._outputs, feeds)
        except Exception as error:  # its exceptions have no common base of their own
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(f"onnx runtime error: {error}"))
        return pb_utils.InferenceResponse(list(map(pb_utils.Tensor, self._outputs, values)))


def check_tensors(side: str, declared: list[dict[str, Any]], graph: list[Any], *, is_batched: bool) -> None:
    """Refuses a config whose tensors are not the graph's."""
    known = {tensor.name: tensor for tensor in graph}
    for tensor in declared:
        name = tensor["name"]
        if name not in known:
            raise refusal(f"unexpected inference {side} '{name}', allowed {side}s are: {', '.join(known)}")
        check_shape(name, ([-1] if is_batched else []) + [int(dim) for dim in tensor["dims"]], known[name].shape)
        if TYPES.get(known[name].type) != tensor["data_type"]:
            raise refusal(
                f"tensor '{name}': {known[name].type} in the model, {tensor['data_type']} in the configuration"
            )


def check_shape(name: str, declared: list[int], shape: list[int | str]) -> None:
    """A dimension without a size in the graph goes with every size."""
    if len(declared) != len(shape):
        raise refusal(
            f"tensor '{name}': the model expects {len(shape)} dimensions (shape {shape}) but the model configuration "
            f"specifies {len(declared)} dimensions (shape {declared})"
        )
    if any(isinstance(dim, int) and dim != given for dim, given in zip(shape, declared, strict=True)):
        raise refusal(f"tensor '{name}': the model expects {shape} but the model configuration specifies {declared}")


def refusal(message: str) -> Exception:
    """What Triton answers the request to load with."""
    error: Exception = pb_utils.TritonModelException(message)
    return error
