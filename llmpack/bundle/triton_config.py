"""A Triton model configuration as typed values, and its text.

Source: Triton's `model_config.proto`; only fields that release 24.01 has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

InstanceKind = Literal["KIND_CPU", "KIND_GPU", "KIND_MODEL"]


@dataclass(frozen=True, slots=True)
class TensorConfig:
    """One input or output; `dims` leaves out the batch dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model; every value is written out, so that no server completes or guesses any.

    Attributes:
        name: That of the model's directory.
        backend: `python`, `vllm` or `onnxruntime`.
        max_batch_size: Rows that Triton may gather; 0 when the model batches by itself.
        inputs: In order.
        outputs: In order.
        is_decoupled: A request may have any number of responses.
        instance_kind: What an instance is placed on.
        num_instances: Processes that run the model.
        queue_delay_us: How long Triton waits for more rows, in microseconds; None without dynamic batching.
        parameters: For the model's code, or for the backend.
        default_model_filename: What the backend loads from the version directory; None for the name it expects.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    is_decoupled: bool
    instance_kind: InstanceKind
    num_instances: int
    queue_delay_us: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default_model_filename: str | None = None


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One model of an ensemble; its tensors are known to the others by their own names."""

    model_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """Models that run one after the other. It has no rows of its own and no instances.

    Attributes:
        name: That of the model's directory.
        inputs: What a request brings.
        outputs: What it is answered with.
        steps: In order.
    """

    name: str
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    steps: tuple[EnsembleStep, ...]


def render_config(config: ModelConfig | EnsembleConfig) -> str:
    """The text of `config.pbtxt`, ASCII only: Triton's parser takes nothing else."""
    lines = _model_lines(config) if isinstance(config, ModelConfig) else _ensemble_lines(config)
    text = "\n".join(lines) + "\n"
    assert text.isascii(), "names and values were checked before"
    return text


def _ensemble_lines(config: EnsembleConfig) -> Iterator[str]:
    yield f'name: "{config.name}"'
    yield 'platform: "ensemble"'
    yield "max_batch_size: 0"
    yield from _tensor_lines(config)
    yield "ensemble_scheduling {"
    yield "  step ["
    yield ",\n".join(_step(step) for step in config.steps)
    yield "  ]"
    yield "}"


def _step(step: EnsembleStep) -> str:
    maps = [f'input_map {{ key: "{name}" value: "{name}" }}' for name in step.inputs]
    maps += [f'output_map {{ key: "{name}" value: "{name}" }}' for name in step.outputs]
    lines = [f'model_name: "{step.model_name}"', "model_version: -1", *maps]
    return "    {\n" + "".join(f"      {line}\n" for line in lines) + "    }"


def _tensor_lines(config: ModelConfig | EnsembleConfig) -> Iterator[str]:
    for side, tensors in (("input", config.inputs), ("output", config.outputs)):
        yield f"{side} ["
        yield ",\n".join(_tensor(tensor) for tensor in tensors)
        yield "]"


def _model_lines(config: ModelConfig) -> Iterator[str]:
    yield f'name: "{config.name}"'
    yield f'backend: "{config.backend}"'
    if config.default_model_filename is not None:
        yield f'default_model_filename: "{config.default_model_filename}"'
    yield f"max_batch_size: {config.max_batch_size}"
    yield from _tensor_lines(config)
    yield f"model_transaction_policy {{ decoupled: {str(config.is_decoupled).lower()} }}"
    if config.queue_delay_us is not None:
        yield f"dynamic_batching {{ max_queue_delay_microseconds: {config.queue_delay_us} }}"
    yield f"instance_group [ {{ count: {config.num_instances} kind: {config.instance_kind} }} ]"
    for key, value in config.parameters:
        yield f'parameters {{ key: "{key}" value {{ string_value: "{_escape(value)}" }} }}'


def _tensor(tensor: TensorConfig) -> str:
    dims = ", ".join(map(str, tensor.dims))
    optional = " optional: true" if tensor.is_optional else ""
    return f'  {{ name: "{tensor.name}" data_type: {tensor.data_type} dims: [ {dims} ]{optional} }}'


def _escape(text: str) -> str:
    """Octal escapes for everything that is not plain ASCII, as protobuf's text format has them."""
    plain = {*range(0x20, 0x7F)} - {*b'"\\'}
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode("utf-8"))
