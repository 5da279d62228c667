"""From Triton's loosely typed request parameters to `SamplingParams`.

Source of what is accepted: triton-inference-server/vllm_backend, branch r26.01: the tensor `sampling_parameters` holds
JSON; without it the request's own parameters count. Values may be numbers spelled as strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from llmpack.errors import RequestError
from llmpack.runtime.sampling_params import SamplingParams

_INTEGERS = frozenset({"n", "top_k", "max_tokens", "min_tokens", "seed", "logprobs"})
_NUMBERS = frozenset(
    {"temperature", "top_p", "min_p", *(f"{k}_penalty" for k in ("repetition", "presence", "frequency"))}
)
_FLAGS = frozenset({"include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens"})
_WORDS = {"true": True, "1": True, "false": False, "0": False}
_UNANSWERABLE = frozenset({"output_kind", "prompt_logprobs"})  # the contract has no output for them
ACCEPTED = tuple(field.name for field in fields(SamplingParams) if field.name not in _UNANSWERABLE)


def parse_sampling_json(text: str) -> dict[str, Any]:
    """The object in `text`.

    Raises:
        RequestError: Not JSON, or not an object.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RequestError(f"sampling_parameters is not valid JSON: {error}", param="sampling_parameters") from error
    except RecursionError as error:
        raise RequestError("sampling_parameters is nested too deep", param="sampling_parameters") from error
    if not isinstance(values, dict):
        raise RequestError("sampling_parameters must be a JSON object", param="sampling_parameters", given=text)
    return values


def build_params(values: Mapping[str, Any], default_max_tokens: int = 16) -> SamplingParams:
    """Sampling parameters; a null counts as not given.

    Raises:
        RequestError: A key that is unknown or not supported, or a value of the wrong type or out of range.
    """
    chosen: dict[str, Any] = {"max_tokens": default_max_tokens}
    for name, value in values.items():
        _check_name(name)
        if value is not None or name == "max_tokens":
            chosen[name] = _coerce(name, value)
    return SamplingParams(**chosen)


def _check_name(name: str) -> None:
    if name in ACCEPTED:
        return
    if name == "lora_name":
        raise RequestError("LoRA feature is not enabled.", param=name)
    nearest = get_close_matches(name, ACCEPTED, n=1)
    hint = f"Did you mean {nearest[0]}?" if nearest else "Remove it."
    raise RequestError(
        f"unknown or unsupported sampling parameter {name[:100]}",
        param=name,
        allowed=", ".join(sorted(ACCEPTED)),
        next_step=hint,
    )


def _coerce(name: str, value: Any) -> Any:
    """`value` as the field's type where a string spells it; `SamplingParams` judges the rest."""
    if not isinstance(value, str):
        return value
    try:
        if name in _INTEGERS:
            return int(value)
        if name in _NUMBERS:
            return float(value)
        if name in _FLAGS:
            return _WORDS[value.strip().lower()]
    except (ValueError, KeyError):
        kind = "an integer" if name in _INTEGERS else "a number" if name in _NUMBERS else "true or false"
        raise RequestError(f"{name} cannot be read", param=name, given=value, allowed=kind) from None
    return value
