"""The forms in which a prompt may be given, and its token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NotRequired, TypeAlias, TypedDict, TypeGuard

from llmpack.errors import RequestError
from llmpack.runtime.sampling_params import is_integer
from llmpack.runtime.tokenizer import Tokenizer

_INLINE_CHARS = 2048
_FORMS = 'a string, a list of token ids, {"prompt": "..."} or {"prompt_token_ids": [...]}'


class TextPrompt(TypedDict):
    """A prompt to be tokenized."""

    prompt: str


class TokensPrompt(TypedDict):
    """A prompt that is tokenized already; `prompt` is its text, where known, and only passed on."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]


Prompt: TypeAlias = str | Sequence[int] | TextPrompt | TokensPrompt


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine takes it.

    Attributes:
        text: None when only ids were given.
        ids: Not checked against the vocabulary yet.
    """

    text: str | None
    ids: list[int]


async def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> EncodedPrompt:
    """The token ids of a prompt, worked out in a thread when a long text would hold up the event loop.

    Special tokens are added to a text as its tokenizer does it, but for a BOS that it begins with already, as rendered
    chat templates do.

    Raises:
        RequestError: `prompt` has none of the forms.
    """
    text, ids = _read(prompt)
    if ids is not None:
        return EncodedPrompt(text, list(ids))
    assert text is not None
    if len(text) <= _INLINE_CHARS:
        return EncodedPrompt(text, encode_text(text, tokenizer))
    return EncodedPrompt(text, await asyncio.to_thread(encode_text, text, tokenizer))


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids with special tokens, and never two BOS at the start."""
    ids = tokenizer.encode(text, add_special_tokens=True)
    bos = tokenizer.named_tokens.get("bos_token")
    spelled = bos is not None and text.startswith(bos)
    return ids[1:] if spelled and ids[:2] == [tokenizer.bos_token_id] * 2 else ids


def is_token_list(prompt: object) -> TypeGuard[Sequence[int]]:
    """Whether `prompt` is a sequence of token ids and nothing else; an empty one is none."""
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes):
        return False
    return bool(prompt) and all(is_integer(item) for item in prompt)


def _read(prompt: object) -> tuple[str | None, Sequence[int] | None]:
    """Text and ids, at least one of them."""
    if isinstance(prompt, Mapping):
        return _read_fields(prompt)
    if isinstance(prompt, str):
        return prompt, None
    if is_token_list(prompt):
        return None, prompt
    raise RequestError("not a prompt", param="prompt", given=prompt, allowed=_FORMS)


def _read_fields(fields: Mapping[str, object]) -> tuple[str | None, Sequence[int] | None]:
    known = TokensPrompt.__annotations__
    for name in fields.keys() - known.keys():
        nearest = get_close_matches(str(name), known, n=1)
        hint = f"Did you mean {nearest[0]}?" if nearest else None
        raise RequestError(
            "unknown field of a prompt", param="prompt", given=name, allowed=", ".join(sorted(known)), next_step=hint
        )
    text, ids = fields.get("prompt"), fields.get("prompt_token_ids")
    if text is not None and not isinstance(text, str):
        raise RequestError("the text of a prompt must be a string", param="prompt", given=text)
    if ids is None and text is None:
        raise RequestError("the prompt is empty", param="prompt", given=dict(fields), allowed=_FORMS)
    if ids is not None and not is_token_list(ids):
        raise RequestError("not token ids", param="prompt_token_ids", given=ids, allowed="at least one integer")
    return text, ids
