"""POST /tokenize and /detokenize, GET /tokenizer_info."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from llmpack.errors import RequestError
from llmpack.server.bodies import DetokenizeBody, TokenizeBody
from llmpack.server.context import context_of, json_response
from llmpack.server.parse import read_body
from llmpack.server.prompts import check_vocabulary, off_loop, render, template_messages
from llmpack.server.responses import Detokenized, Tokenized
from llmpack.server.served_model import ServedModel


async def tokenize(request: Request) -> Response:
    """The ids that a prompt or a conversation is made of."""
    context = context_of(request)
    body = await read_body(request, TokenizeBody, context.options.max_body_bytes)
    model = context.model
    if body.model is not None:
        model.check_name(body.model)
    text = await _text(body, model)
    add_special = body.prompt is not None if body.add_special_tokens is None else body.add_special_tokens
    return json_response(await off_loop(len(text), _tokenized, text, add_special, body.return_token_strs, model))


def _tokenized(text: str, add_special: bool, with_strs: bool | None, model: ServedModel) -> bytes:
    ids = model.tokenizer.encode(text, add_special_tokens=add_special)
    strs = [model.tokenizer.token_text(token_id) for token_id in ids] if with_strs else None
    return msgspec.json.encode(Tokenized(len(ids), model.limits.max_seq_len, ids, strs))


async def _text(body: TokenizeBody, model: ServedModel) -> str:
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("one of `prompt` and `messages` is required", param="prompt")
    if body.prompt is not None:
        return body.prompt
    messages = template_messages(body.messages)
    return await asyncio.to_thread(render, body, messages, model)


async def detokenize(request: Request) -> Response:
    """The text of ids, special tokens included."""
    context = context_of(request)
    body = await read_body(request, DetokenizeBody, context.options.max_body_bytes)
    if body.model is not None:
        context.model.check_name(body.model)
    if body.tokens is None:
        raise RequestError("`tokens` is required", param="tokens")
    check_vocabulary(body.tokens, context.model, "tokens")
    text = await off_loop(len(body.tokens), context.model.tokenizer.decode, body.tokens, skip_special_tokens=False)
    return json_response(msgspec.json.encode(Detokenized(text)))


async def tokenizer_info(request: Request) -> Response:
    """What tokenizer_config.json says, for clients that build prompts themselves."""
    return json_response(msgspec.json.encode(context_of(request).model.tokenizer_info))
