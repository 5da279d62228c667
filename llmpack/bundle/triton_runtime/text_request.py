"""The tensors of one request, read by the contract of Triton's vLLM backend.

Source: triton-inference-server/vllm_backend, README and `docs/additional_outputs.md` of branch r26.01.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from llmpack.bundle.triton_runtime.sampling import build_params, parse_sampling_json
from llmpack.errors import RequestError
from llmpack.runtime.sampling_params import SamplingParams

Tensors = Mapping[str, npt.NDArray[Any]]

EXTRA_OUTPUTS = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What a client asked for.

    Attributes:
        prompt: As it was sent.
        params: Counts logprobs whenever an output needs them.
        is_streamed: One response per step instead of a single one.
        is_echoed: The prompt stands before the text.
        extra_outputs: Those of `EXTRA_OUTPUTS` that every response carries.
        wants_logprobs: The sampling parameters ask for logprobs; else that output is "null".
    """

    prompt: str
    params: SamplingParams
    is_streamed: bool
    is_echoed: bool
    extra_outputs: frozenset[str]
    wants_logprobs: bool


def read_tensors(request: Any) -> dict[str, npt.NDArray[Any]]:
    """The input tensors of a Triton request by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def parse_text_request(tensors: Tensors, parameters: str, default_max_tokens: int = 16) -> TextRequest:
    """What the tensors and the request's own parameters (a JSON object) ask for.

    Raises:
        RequestError: A tensor has the wrong shape or text, or the sampling parameters cannot be used.
    """
    is_streamed = read_flag(tensors, "stream", default=False)
    extras = frozenset(name for name in EXTRA_OUTPUTS if read_flag(tensors, f"return_{name}", default=False))
    params = build_params(read_sampling(tensors, parameters), default_max_tokens)
    wants_logprobs = params.logprobs is not None
    if "cumulative_logprob" in extras and not wants_logprobs:
        params = replace(params, logprobs=0)
    return TextRequest(
        prompt=read_text(tensors, "text_input"),
        params=params,
        is_streamed=is_streamed,
        is_echoed=_read_echo(tensors, is_streamed=is_streamed),
        extra_outputs=extras,
        wants_logprobs=wants_logprobs,
    )


def read_sampling(tensors: Tensors, parameters: str) -> dict[str, Any]:
    """The sampling parameters: the tensor, else the request's own parameters.

    Raises:
        RequestError: The tensor is no JSON object.
    """
    if "sampling_parameters" in tensors:
        return parse_sampling_json(read_text(tensors, "sampling_parameters"))
    return read_parameters(parameters)


def read_parameters(parameters: str) -> dict[str, Any]:
    """A request's own parameters, a JSON object, without those that are Triton's."""
    given: dict[str, Any] = json.loads(parameters or "{}")
    return {name: value for name, value in given.items() if not name.startswith("triton_")}


def read_text(tensors: Tensors, name: str) -> str:
    """The one string of a tensor.

    Raises:
        RequestError: Missing, not exactly one element, or not UTF-8.
    """
    return _decode(name, _read_one(tensors, name))


def read_texts(tensors: Tensors, name: str) -> list[str]:
    """All strings of a tensor, at least one.

    Raises:
        RequestError: Missing, empty or not UTF-8.
    """
    texts = [_decode(name, item) for item in _find(tensors, name).reshape(-1)]
    if not texts:
        raise RequestError(f"{name} is empty", param=name, allowed="at least one row")
    return texts


def read_flag(tensors: Tensors, name: str, *, default: bool) -> bool:
    """The one boolean of a tensor, or `default` when the request has no such tensor.

    Raises:
        RequestError: Not exactly one element.
    """
    return bool(_read_one(tensors, name)) if name in tensors else default


def _find(tensors: Tensors, name: str) -> npt.NDArray[Any]:
    if name not in tensors:
        raise RequestError(f"the input {name} is missing", param=name)
    return tensors[name]


def _decode(name: str, item: Any) -> str:
    try:
        return item.decode("utf-8") if isinstance(item, bytes) else str(item)
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 ({error.reason} at byte {error.start})", param=name) from error


def _read_one(tensors: Tensors, name: str) -> Any:
    values = _find(tensors, name).reshape(-1)
    if len(values) != 1:
        shape = list(tensors[name].shape)
        raise RequestError(f"{name} must hold one element", param=name, given=shape, allowed="shape [1]")
    return values[0]


def _read_echo(tensors: Tensors, *, is_streamed: bool) -> bool:
    is_excluded = read_flag(tensors, "exclude_input_in_output", default=is_streamed)
    if is_streamed and not is_excluded:
        # The reference's own sentence: clients compare it.
        raise RequestError(
            "When streaming, `exclude_input_in_output` = False is not allowed.", param="exclude_input_in_output"
        )
    return not is_excluded
