"""From a prompt's text to the sequences that the engine generates."""

from __future__ import annotations

from dataclasses import replace

from llmpack.api.prompts import encode_text
from llmpack.runtime.request import GenerationRequest
from llmpack.runtime.resolve import ModelLimits, resolve_requests
from llmpack.runtime.sampling_params import SamplingParams
from llmpack.runtime.tokenizer import Tokenizer


def resolve_prompt(
    prompt: str, params: SamplingParams, request_id: str, tokenizer: Tokenizer, limits: ModelLimits
) -> list[GenerationRequest]:
    """The `n` sequences of a prompt. A `max_tokens` beyond the context is cut to what is left, as vLLM does.

    Raises:
        RequestError: The prompt is empty or too long, or a parameter does not fit the model.
    """
    prompt_ids = encode_text(prompt, tokenizer)
    room = limits.max_seq_len - len(prompt_ids)
    if params.max_tokens is not None and 0 < room < params.max_tokens and params.min_tokens <= room:
        params = replace(params, max_tokens=room)
    return resolve_requests(params, prompt_ids, request_id=request_id, tokenizer=tokenizer, limits=limits)
