"""Answer bodies. A field with a default is left out of the JSON while it has it; the others are always there.

OpenAI's schema lets only `content`, `refusal`, `logprobs`, `finish_reason`, `param` and `code` be null; every other
optional field is absent or has its type. `prompt_token_ids`, `token_ids`, `stop_reason`, `prompt_logprobs` and
`max_model_len` are vLLM's.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType


class PromptTokensDetails(Struct):
    """How many of the prompt's tokens stood in the cache already and were not computed again."""

    cached_tokens: int


class Usage(Struct):
    """Token counts of a whole answer; a prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(Struct):
    """Parallel lists, one entry per token.

    Attributes:
        text_offset: Where the token starts in the choice's text, in code points.
        token_logprobs: Null for the first token of a prompt.
        tokens: The tokens' texts, or `bytes:` and escaped bytes where a token is not whole UTF-8.
        top_logprobs: The best tokens and the chosen one; null for the first token of a prompt.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TopLogprob(Struct):
    """One alternative."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """The chosen token and its alternatives, best first."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    """Log-probabilities of a message."""

    content: list[TokenLogprob]
    refusal: None = None


class PromptLogprob(Struct):
    """One candidate for a position of the prompt, in vLLM's form."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionChoice(Struct, omit_defaults=True):
    """One continued prompt, or one piece of it in a stream."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class Completion(Struct, omit_defaults=True):
    """Answer of /v1/completions, and chunk of its stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    service_tier: str | None = None


class ChatMessage(Struct):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any]


class ChatChoice(Struct, omit_defaults=True):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatCompletion(Struct, omit_defaults=True):
    """Answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    service_tier: str | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None


class Delta(Struct, omit_defaults=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(Struct, omit_defaults=True):
    """One piece of one answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatChunk(Struct, omit_defaults=True):
    """Chunk of a chat stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    service_tier: str | None = None
    prompt_token_ids: list[int] | None = None


class Model(Struct, omit_defaults=True):
    """Entry of /v1/models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int
    parent: str | None = None


class ModelList(Struct):
    """Answer of /v1/models."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(Struct):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct):
    """Answer of /detokenize."""

    prompt: str


class ErrorDetail(Struct):
    """What went wrong; all four keys are always there."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct):
    """Every answer that is not a success."""

    error: ErrorDetail
