"""From a request body to `SamplingParams`, with the model's defaults for what the request leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmpack.errors import RequestError
from llmpack.runtime.sampling_params import SamplingParams
from llmpack.server.bodies import ChatBody, CompletionBody
from llmpack.server.parse import field_name

_SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "seed",
)


def completion_params(body: CompletionBody, defaults: Mapping[str, float]) -> SamplingParams:
    """The sampling parameters of a completions request.

    Raises:
        RequestError: A value out of range; `param` is the field.
    """
    num_choices = 1 if body.n is None else body.n
    if body.best_of not in (None, num_choices):
        raise RequestError(
            "`best_of` other than `n` is not supported",
            param="best_of",
            code="unsupported_parameter",
            given=body.best_of,
            allowed=f"null or {num_choices}",
        )
    if body.max_tokens == 0 and not body.echo:
        raise RequestError("`max_tokens` of 0 needs `echo`", param="max_tokens", given=0, allowed="1 or more")
    max_tokens = 16 if body.max_tokens is None else body.max_tokens
    prompt_logprobs = _stronger(body.prompt_logprobs, body.logprobs if body.echo else None)
    counts = {"max_tokens": max_tokens, "logprobs": body.logprobs, "prompt_logprobs": prompt_logprobs}
    return _build(body, defaults, counts)


def chat_params(body: ChatBody, defaults: Mapping[str, float]) -> SamplingParams:
    """The sampling parameters of a chat request.

    Raises:
        RequestError: A value out of range; `param` is the field.
    """
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if max_tokens is not None and max_tokens < 1:
        raise RequestError("too few", param=field_name(body, "max_tokens"), given=max_tokens, allowed="1 or more")
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("`top_logprobs` needs `logprobs` to be true", param="top_logprobs")
    num_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    counts = {"max_tokens": max_tokens, "logprobs": num_logprobs, "prompt_logprobs": body.prompt_logprobs}
    return _build(body, defaults, counts)


def _stronger(one: int | None, other: int | None) -> int | None:
    given = [value for value in (one, other) if value is not None]
    return -1 if -1 in given else max(given, default=None)


def _build(
    body: CompletionBody | ChatBody, defaults: Mapping[str, float], counts: Mapping[str, int | None]
) -> SamplingParams:
    _check_stream(body)
    values: dict[str, Any] = dict(defaults) | dict(counts)
    values |= {name: getattr(body, name) for name in _SAME_NAME if getattr(body, name) is not None}
    try:
        return SamplingParams(**values)
    except RequestError as error:
        error.param = field_name(body, error.param) if error.param else None
        raise


def _check_stream(body: CompletionBody | ChatBody) -> None:
    if not body.stream:
        if body.stream_options is not None:
            raise RequestError("`stream_options` needs `stream` to be true", param="stream_options")
        return
    if body.prompt_logprobs is not None:
        raise RequestError("`prompt_logprobs` cannot be streamed", param="prompt_logprobs")
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        param = "stream_options.include_obfuscation"
        raise RequestError("obfuscation is not supported", param=param, code="unsupported_parameter")
