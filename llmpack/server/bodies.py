"""Request bodies, field by field. A field is honoured or refused by name, never ignored.

| fields | what happens |
|---|---|
| of `SamplingFields`, `CompletionBody`, `ChatBody`, ... | honoured; null means absent |
| `user`, `metadata`, `safety_identifier`, `prompt_cache_*`, `cache_salt` | accepted: they change no answer |
| `service_tier` | accepted and answered with "default" |
| in `REFUSED` | 400 `unsupported_parameter`, unless null or one of the values that change nothing |
| any other | 400 `unknown_parameter` with the nearest name |

Types are strict: no number in a string, no boolean for a number. Ranges are `SamplingParams`'s. The refused fields
stand in the structs as `Any` so that a misspelt name and a name that is merely unsupported get different answers.
Source: OpenAI's OpenAPI document; vLLM 0.32 for the fields that OpenAI lacks.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]

REFUSED: dict[str, tuple[Any, ...]] = {
    "allowed_tools": (),
    "audio": (),
    "chat_template": (),
    "documents": (),
    "function_call": ("none",),
    "functions": (),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "kv_transfer_params": (),
    "length_penalty": (1, 1.0),
    "logprob_token_ids": (),
    "lora_request": (),
    "mm_processor_kwargs": (),
    "modalities": (["text"],),
    "prediction": (),
    "priority": (0,),
    "prompt_embeds": (),
    "reasoning_effort": ("none",),
    "repetition_detection": (),
    "response_format": ({"type": "text"},),
    "session_id": (),
    "store": (False,),
    "stream_interval": (1,),
    "structured_outputs": (),
    "suffix": ("",),
    "thinking_token_budget": (),
    "tool_choice": ("none",),
    "tools": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": (),
    "web_search_options": (),
}
"""Known fields that this server does not support -> the values that change nothing and are accepted (beside null)."""


class StreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """How a stream is written.

    Attributes:
        include_usage: One more chunk with the usage after the last finish_reason.
        continuous_usage_stats: The usage so far in every chunk.
        include_obfuscation: Only false is supported.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(Struct, kw_only=True, forbid_unknown_fields=True):
    """What completions and chat share. See `SamplingParams` for the ranges of the fields of the same name.

    Attributes:
        model: Required unless the server has a default model.
        seed: An integer; 1.0 is taken for 1, and -1 for none.
        logit_bias: Token id, as a string, -> bias.
        truncate_prompt_tokens: Keep only the last so many prompt tokens; -1 keeps as many as leave room to answer.
        add_special_tokens: Let the tokenizer add BOS and the like.
        return_token_ids: Add prompt_token_ids and token_ids to the answer.
        return_tokens_as_token_ids: Write tokens in logprobs as `token_id:42`.
        request_id: Becomes the end of the answer's id.
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    seed: int | float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    echo: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    request_id: str | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    cache_salt: str | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None

    guided_choice: Any = None
    guided_decoding_backend: Any = None
    guided_grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_whitespace_pattern: Any = None
    kv_transfer_params: Any = None
    length_penalty: Any = None
    logprob_token_ids: Any = None
    lora_request: Any = None
    priority: Any = None
    repetition_detection: Any = None
    response_format: Any = None
    session_id: Any = None
    store: Any = None
    stream_interval: Any = None
    structured_outputs: Any = None
    use_beam_search: Any = None
    vllm_xargs: Any = None


class CompletionBody(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions.

    Attributes:
        prompt: A text, a list of texts, a list of token ids, or a list of lists of token ids.
        logprobs: Alternatives beside each chosen token; 0 is a request, null is none.
        best_of: Only null or the value of `n`.
    """

    prompt: str | list[Any] | None = None
    logprobs: int | None = None
    best_of: int | None = None

    prompt_embeds: Any = None
    suffix: Any = None


class Message(Struct, kw_only=True, forbid_unknown_fields=True):
    """One message of a conversation, as the template sees it.

    Attributes:
        content: A text, or a list of parts of type `text`.
        tool_calls: Calls of an earlier turn; `arguments` may be JSON in a string.
        reasoning: Thoughts of an earlier turn, for templates that show them (`reasoning_content` is another spelling).
        refusal, annotations, audio, function_call: As OpenAI's answers carry them; only empty ones are accepted.
    """

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None


class ChatBody(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions.

    Attributes:
        max_completion_tokens: Wins over max_tokens.
        logprobs: Whether to return log-probabilities at all.
        top_logprobs: Alternatives beside each chosen token.
        chat_template_kwargs: Further variables for the template.
        continue_final_message: The model goes on with the last message, which must be the assistant's.
    """

    messages: list[Message] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    allowed_tools: Any = None
    audio: Any = None
    chat_template: Any = None
    documents: Any = None
    function_call: Any = None
    functions: Any = None
    include_reasoning: Any = None
    mm_processor_kwargs: Any = None
    modalities: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    thinking_token_budget: Any = None
    tool_choice: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None


class TokenizeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize: either `prompt` or `messages`.

    Attributes:
        add_special_tokens: Default true for a prompt and false for messages, whose template writes them.
        return_token_strs: Also return the tokens' texts.
    """

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    chat_template: Any = None
    tools: Any = None


class DetokenizeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize.

    Attributes:
        tokens: Ids below the vocabulary's size.
    """

    model: str | None = None
    tokens: list[int] | None = None
