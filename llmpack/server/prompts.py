"""What a request wants continued: texts, ids or a conversation, turned into token ids.

Long texts are encoded in a worker thread, and all conversations rendered in one, since a template may do anything: the
event loop has streams to serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from llmpack.errors import ContextLengthExceeded, RequestError
from llmpack.server.bodies import ChatBody, CompletionBody, Message, TokenizeBody
from llmpack.server.parse import check_depth, unsupported_field
from llmpack.server.served_model import ServedModel

INLINE_CHARS = 2048
# Normalisers may join a few characters into one before a token is looked for.
_MAX_CHARS_JOINED = 4

_Result = TypeVar("_Result")
_Args = ParamSpec("_Args")


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        ids: Its tokens, never empty.
        echo_text: What `echo` puts before the answer.
    """

    ids: tuple[int, ...]
    echo_text: str


async def off_loop(size: int, call: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
    """Calls `call`, in a thread when `size` characters or ids would hold up the event loop."""
    if size <= INLINE_CHARS:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)


def split_prompts(prompt: str | list[Any] | None, max_prompts: int) -> list[str | list[int]]:
    """The prompts of a completions request, one item each.

    Raises:
        RequestError: None, none at all, too many, or of mixed kinds.
    """
    match prompt:
        case None:
            raise RequestError("`prompt` is required", param="prompt")
        case str():
            return [prompt]
        case [] | [[]]:
            raise RequestError("`prompt` is empty", param="prompt", allowed="at least one token")
    if _are_ids(prompt):
        return [prompt]
    if not (all(isinstance(item, str) for item in prompt) or all(_are_ids(item) for item in prompt)):
        allowed = "a string, a list of strings, a list of token ids, or a list of lists of token ids"
        raise RequestError("`prompt` mixes kinds or holds something else", param="prompt", allowed=allowed)
    if len(prompt) > max_prompts:
        raise RequestError("too many prompts", param="prompt", given=len(prompt), allowed=f"at most {max_prompts}")
    return prompt


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


async def encode_prompts(given: Sequence[str | list[int]], body: CompletionBody, model: ServedModel) -> list[Prompt]:
    """Encodes the prompts of a completions request, in order.

    Raises:
        RequestError: Nothing is left to continue from.
    """
    return await off_loop(sum(map(len, given)), _encode_all, given, body, model)


def _encode_all(given: Sequence[str | list[int]], body: CompletionBody, model: ServedModel) -> list[Prompt]:
    return [_encode_prompt(prompt, body, model) for prompt in given]


def _encode_prompt(given: str | list[int], body: CompletionBody, model: ServedModel) -> Prompt:
    if isinstance(given, str):
        check_text_len(given, body, model, "prompt")
        ids: Sequence[int] = model.tokenizer.encode(given, add_special_tokens=body.add_special_tokens is not False)
    else:
        ids = given
    kept = truncate(ids, body, model)
    if not body.echo:
        return Prompt(kept, "")
    if isinstance(given, str) and len(kept) == len(ids):
        return Prompt(kept, given)
    check_vocabulary(kept, model, "prompt")
    skip_special = body.skip_special_tokens is not False
    return Prompt(kept, model.tokenizer.decode(list(kept), skip_special_tokens=skip_special))


def check_text_len(text: str, body: CompletionBody | ChatBody, model: ServedModel, param: str) -> None:
    """Refuses a text that cannot fit before it is encoded, which takes a hundred times its memory.

    Raises:
        ContextLengthExceeded: Even tokens of the greatest length could not spell it within the context.
    """
    limit = model.limits.max_seq_len
    if body.truncate_prompt_tokens is not None or len(text) <= limit * _MAX_CHARS_JOINED:
        return
    most = limit * _MAX_CHARS_JOINED * model.tokenizer.longest_token_len
    if len(text) > most:
        raise ContextLengthExceeded(
            f"this model's maximum context length is {limit} tokens, but the prompt is longer than any {limit} tokens",
            param=param,
            code="context_length_exceeded",
            given=f"{len(text)} characters",
            allowed=f"{limit} tokens, never more than {most} characters",
            next_step="Shorten the prompt.",
        )


def check_vocabulary(ids: Sequence[int], model: ServedModel, param: str) -> None:
    """Returns if all ids are in the vocabulary.

    Raises:
        RequestError: With `param`.
    """
    size = model.limits.vocab_size
    wrong = next((token_id for token_id in ids if not 0 <= token_id < size), None)
    if wrong is not None:
        raise RequestError("token id outside the vocabulary", param=param, given=wrong, allowed=f"0 to {size - 1}")


def truncate(ids: Sequence[int], body: CompletionBody | ChatBody, model: ServedModel) -> tuple[int, ...]:
    """The last `truncate_prompt_tokens` ids, or all of them when the request does not ask for it.

    Raises:
        RequestError: A length out of range, or no ids.
    """
    if not ids:
        raise RequestError("the prompt has no tokens", param="prompt", next_step="Send a prompt that is not empty.")
    keep = body.truncate_prompt_tokens
    if keep is None:
        return tuple(ids)
    limit = model.limits.max_seq_len
    if keep == 0 or not -1 <= keep <= limit:
        allowed = f"-1, or 1 to {limit}"
        raise RequestError("cannot truncate to this", param="truncate_prompt_tokens", given=keep, allowed=allowed)
    if keep == -1:
        keep = max(1, limit - max(_wanted_tokens(body), 1))
    return tuple(ids[-keep:])


def _wanted_tokens(body: CompletionBody | ChatBody) -> int:
    if isinstance(body, CompletionBody):
        return 16 if body.max_tokens is None else body.max_tokens
    return body.max_completion_tokens or body.max_tokens or 1


async def encode_conversation(messages: list[dict[str, Any]], body: ChatBody, model: ServedModel) -> Prompt:
    """Renders and encodes a chat request.

    Args:
        messages: As `template_messages` gives them.
        body: The rest of the request.
        model: Whose template it is.

    Raises:
        RequestError: Flags that contradict each other, or the template's own message.
    """
    text = await asyncio.to_thread(render, body, messages, model)
    check_text_len(text, body, model, "messages")
    ids = await off_loop(len(text), model.tokenizer.encode, text, add_special_tokens=body.add_special_tokens is True)
    last = messages[-1]
    echoes = body.echo and last["role"] == "assistant" and isinstance(last["content"], str)
    return Prompt(truncate(ids, body, model), last["content"] if echoes else "")


def render(body: ChatBody | TokenizeBody, messages: list[dict[str, Any]], model: ServedModel) -> str:
    """The conversation as the text that the model was trained on.

    Raises:
        RequestError: Contradicting flags, no template, or the template's own message.
    """
    continues = body.continue_final_message is True
    opens = body.add_generation_prompt is True if continues else body.add_generation_prompt is not False
    if continues and opens:
        message = "`continue_final_message` and `add_generation_prompt` cannot both be true"
        raise RequestError(message, param="continue_final_message")
    if continues and messages[-1]["role"] != "assistant":
        message = "`continue_final_message` needs a last message of the assistant"
        raise RequestError(message, param="continue_final_message", given=messages[-1]["role"])
    kwargs = body.chat_template_kwargs or {}
    check_depth(kwargs, "chat_template_kwargs")
    return model.require_chat_template().render(
        messages,
        add_generation_prompt=opens,
        continue_final_message=continues,
        kwargs={**model.chat_template_kwargs, **kwargs},
    )


def template_messages(messages: list[Message] | None) -> list[dict[str, Any]]:
    """Messages as plain dicts with text content, as templates read them; absent keys are left out.

    Raises:
        RequestError: With the message's index in `param`.
    """
    if not messages:
        raise RequestError("`messages` must hold at least one message", param="messages")
    return [_template_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _template_message(message: Message, where: str) -> dict[str, Any]:
    if message.role == "function":
        raise unsupported_field(f"{where}.role", given="function")
    for name in ("audio", "function_call", "annotations", "refusal"):
        if getattr(message, name):
            raise unsupported_field(f"{where}.{name}", given=getattr(message, name))
    if message.content is None and not message.tool_calls:
        raise RequestError("a message without content", param=f"{where}.content", allowed="a string or text parts")
    fields: dict[str, Any] = {"role": message.role, "content": _text_content(message.content, where)}
    for name in ("name", "tool_call_id", "reasoning", "reasoning_content"):
        if getattr(message, name) is not None:
            fields[name] = getattr(message, name)
    if message.tool_calls:
        check_depth(message.tool_calls, f"{where}.tool_calls")
        fields["tool_calls"] = message.tool_calls
    return fields


def _text_content(content: str | list[dict[str, Any]] | None, where: str) -> str | list[dict[str, Any]]:
    if not isinstance(content, list):
        return content or ""
    for index, part in enumerate(content):
        _check_part(part, f"{where}.content[{index}]")
    return content


def _check_part(part: dict[str, Any], where: str) -> None:
    if not isinstance(part.get("type"), str):
        raise RequestError("a content part needs a type", param=f"{where}.type", allowed="text")
    if part["type"] != "text":
        message = "this model reads only text"
        given = part["type"]
        raise RequestError(message, param=f"{where}.type", code="unsupported_content", given=given, allowed="text")
    if not isinstance(part.get("text"), str):
        raise RequestError("a text part needs a text", param=f"{where}.text", allowed="a string")
    unknown = part.keys() - {"type", "text"}
    if unknown:
        name = min(unknown)
        raise RequestError(f"unknown field `{name}`", param=f"{where}.{name}"[:200], code="unknown_parameter")
