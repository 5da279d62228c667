"""What Triton hands to a Python model, as plain objects: `pb_utils`, requests and response senders."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt


class TritonModelException(Exception):
    """Refuses to load."""


class TritonError:
    """An error with its code."""

    INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED = "internal", "invalid", "unavailable", "cancelled"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        self.message, self.code = message, code


class Tensor:
    """A named array."""

    def __init__(self, name: str, values: npt.NDArray[Any]) -> None:
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> npt.NDArray[Any]:
        return self._values


class InferenceResponse:
    """Tensors or an error."""

    def __init__(self, output_tensors: list[Tensor], error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class MetricFamily:
    """Keeps its values; refuses what another kind would take."""

    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
    values: ClassVar[defaultdict[str, float]] = defaultdict(float)

    def __init__(self, name: str, description: str, kind: str) -> None:
        assert description
        self.name, self.kind = name, kind

    def Metric(self, labels: dict[str, str], **_settings: Any) -> MetricFamily:  # noqa: N802 - Triton's name
        assert labels.keys() == {"model", "version"}
        return self

    def increment(self, value: float) -> None:
        assert self.kind == self.COUNTER
        self.values[self.name] += value

    def set(self, value: float) -> None:
        assert self.kind == self.GAUGE
        self.values[self.name] = value

    def observe(self, _value: float) -> None:
        assert self.kind == self.HISTOGRAM
        self.values[self.name] += 1


class Logger:
    """Collects messages."""

    def __init__(self) -> None:
        self.infos: list[str] = []
        self.errors: list[str] = []

    def log_info(self, message: str) -> None:
        self.infos.append(message)

    def log_error(self, message: str) -> None:
        self.errors.append(message)


class FakeTriton:
    """`pb_utils` of one model."""

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    Tensor, InferenceResponse, TritonError = Tensor, InferenceResponse, TritonError
    TritonModelException = TritonModelException

    def __init__(self, model_dir: Path = Path()) -> None:
        self.Logger = Logger()
        self.MetricFamily = type("Family", (MetricFamily,), {"values": defaultdict(float)})
        self._model_dir = model_dir

    def get_model_dir(self) -> str:
        return str(self._model_dir)


@dataclass
class Sender:
    """Collects responses; like Triton's, takes none after the last."""

    responses: list[InferenceResponse] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    first: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        if self.done.is_set():
            raise TritonModelException("Response sender has been closed.")
        self.responses.append(response)
        self.first.set()
        if flags:
            self.done.set()

    def is_cancelled(self) -> bool:
        return self.cancelled

    def wait(self) -> list[InferenceResponse]:
        assert self.done.wait(20)
        return self.responses

    def error(self) -> TritonError:
        """The error of the only response."""
        (response,) = self.wait()
        assert response.error is not None
        return response.error

    def texts(self, choice: int = 0) -> list[str]:
        """A choice's text in each response."""
        responses = self.wait()
        assert all(response.error is None for response in responses), responses[-1].error
        return [response.outputs["text_output"][choice].decode() for response in responses]


class Request:
    """A request: strings and booleans become tensors of shape [1], lists of strings of shape [N, 1]."""

    def __init__(self, parameters: dict[str, Any] | None = None, **inputs: Any) -> None:
        self.sender = Sender()
        self.cancelled = False
        self._parameters = parameters or {}
        self._inputs = [Tensor(name, _array(value)) for name, value in inputs.items()]

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def parameters(self) -> str:
        return json.dumps(self._parameters)

    def get_response_sender(self) -> Sender:
        return self.sender

    def is_cancelled(self) -> bool:
        return self.cancelled


def _array(value: Any) -> npt.NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool):
        return np.array([value])
    if isinstance(value, list):
        return np.array([[item.encode()] for item in value], dtype=np.object_)
    return np.array([value.encode()], dtype=np.object_)
