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
        backend: `python` or `vllm`.
        max_batch_size: Rows that Triton may gather; 0 when the model batches by itself.
        inputs: In order.
        outputs: In order.
        is_decoupled: A request may have any number of responses.
        instance_kind: What an instance is placed on.
        num_instances: Instances, each with an engine of its own.
        queue_delay_us: How long Triton waits for more rows, in microseconds; None without dynamic batching.
        parameters: For the model's code.
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


def render_config(config: ModelConfig) -> str:
    """The text of `config.pbtxt`, ASCII only: Triton's parser takes nothing else."""
    text = "\n".join(_lines(config)) + "\n"
    assert text.isascii(), "names and values were checked before"
    return text


def _lines(config: ModelConfig) -> Iterator[str]:
    yield f'name: "{config.name}"'
    yield f'backend: "{config.backend}"'
    yield f"max_batch_size: {config.max_batch_size}"
    for side, tensors in (("input", config.inputs), ("output", config.outputs)):
        yield f"{side} ["
        yield ",\n".join(_tensor(tensor) for tensor in tensors)
        yield "]"
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
