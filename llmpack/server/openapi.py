"""GET /openapi.json, made from the same types that decode and encode the bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from llmpack import __version__
from llmpack.server.bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from llmpack.server.context import json_response
from llmpack.server.responses import (
    ChatChunk,
    ChatCompletion,
    Completion,
    Detokenized,
    ErrorBody,
    Model,
    ModelList,
    Tokenized,
)

_POSTS: dict[str, tuple[type[Struct], type[Struct], type[Struct] | None]] = {
    "/v1/completions": (CompletionBody, Completion, Completion),
    "/v1/chat/completions": (ChatBody, ChatCompletion, ChatChunk),
    "/tokenize": (TokenizeBody, Tokenized, None),
    "/detokenize": (DetokenizeBody, Detokenized, None),
}
"""Path -> body, answer, chunk of a stream."""

_GETS: dict[str, type[Struct] | None] = {
    "/v1/models": ModelList,
    "/v1/models/{model}": Model,
    "/tokenizer_info": None,
    "/health": None,
    "/ping": None,
    "/version": None,
    "/metrics": None,
}
"""Path -> answer, where it is JSON of a fixed shape."""


async def openapi(_request: Request) -> Response:
    """This server's OpenAPI 3.1 document."""
    return json_response(_document())


@cache
def _document() -> bytes:
    bodies = {kind for post in _POSTS.values() for kind in post if kind is not None}
    answers = {kind for kind in _GETS.values() if kind is not None}
    types = sorted(bodies | answers | {ErrorBody}, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {path: {"get": _get(path, answer, refs)} for path, answer in _GETS.items()}
    paths |= {path: {"post": _post(post, refs)} for path, post in _POSTS.items()}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "llmpack", "version": __version__},
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
    return msgspec.json.encode(document)


def _get(path: str, answer: type[Struct] | None, refs: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[answer]}} if answer is not None else {}
    operation: dict[str, Any] = {"responses": {"200": {"description": "Done.", "content": content}, **_errors(refs)}}
    if "{model}" in path:
        schema = {"type": "string"}
        operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": schema}]
    return operation


def _post(
    post: tuple[type[Struct], type[Struct], type[Struct] | None], refs: dict[type[Struct], dict[str, Any]]
) -> dict[str, Any]:
    body, answer, chunk = post
    content: dict[str, Any] = {"application/json": {"schema": refs[answer]}}
    if chunk is not None:
        content["text/event-stream"] = {"schema": refs[chunk]}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": refs[body]}}},
        "responses": {"200": {"description": "Done.", "content": content}, **_errors(refs)},
    }


def _errors(refs: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[ErrorBody]}}
    return {"default": {"description": "Refused or failed.", "content": content}}
