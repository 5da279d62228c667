"""From bytes to a body that has the right shape, or to an error that names the field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request

from llmpack.errors import RequestError
from llmpack.server.bodies import REFUSED, ChatBody, Message, StreamOptions
from llmpack.server.errors import ApiError, ClientGone

MAX_DEPTH = 64

_Body = TypeVar("_Body", bound=Struct)
_PATH = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*?)`", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(.*?)`")
_NESTED: dict[str, type[Struct]] = {"messages": Message, "stream_options": StreamOptions}


async def read_body(request: Request, body_type: type[_Body], max_bytes: int) -> _Body:
    """Reads and decodes the request's body.

    Raises:
        ApiError: 413 for a long body, 415 for another content type or a compressed body.
        RequestError: Not JSON, not an object, a wrong type, an unknown or an unsupported field.
        ClientGone: The connection closed before the body was complete.
    """
    check_content_type(request.headers.get("content-type"))
    check_content_encoding(request.headers.get("content-encoding"))
    return decode_body(await _read_bytes(request, max_bytes), body_type)


def check_content_type(content_type: str | None) -> None:
    """Accepts JSON, and a missing header as JSON.

    Raises:
        ApiError: 415.
    """
    media_type = (content_type or "application/json").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        message = f"The body must be JSON; given content type: {media_type[:100]}; allowed: application/json."
        raise ApiError(415, message, code="unsupported_media_type")


def check_content_encoding(encoding: str | None) -> None:
    """Accepts a body that is not compressed.

    Raises:
        ApiError: 415.
    """
    if encoding is not None and encoding.strip().lower() not in {"", "identity"}:
        message = f"The body must not be compressed; given content encoding: {encoding[:100]}; allowed: identity."
        raise ApiError(415, message, code="unsupported_media_type", headers={"Accept-Encoding": "identity"})


def too_large(max_bytes: int) -> ApiError:
    """The 413 for a body of more than `max_bytes`; closes the connection, whose rest nobody reads."""
    message = f"The request body is longer than {max_bytes} bytes."
    return ApiError(413, message, code="request_too_large", headers={"Connection": "close"})


async def _read_bytes(request: Request, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise too_large(max_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def decode_body(raw: bytes, body_type: type[_Body]) -> _Body:
    """Decodes strictly: no NaN, no lone surrogates, no coercion.

    Raises:
        RequestError: With `param` set to the dotted path of the field at fault.
    """
    try:
        body = msgspec.json.decode(raw, type=body_type)
    except msgspec.ValidationError as error:
        raise _validation_error(str(error), body_type) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"the JSON body could not be parsed: {error}", code="invalid_json") from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise RequestError("the JSON body could not be parsed", code="invalid_json") from error
    _check_refused(body)
    return body


def _validation_error(message: str, body_type: type[Struct]) -> RequestError:
    found = _PATH.search(message)
    path = found.group(1).lstrip(".").partition("[...]")[0] if found else ""  # [...] is a key of an object
    what = _PATH.sub("", message)
    unknown = _UNKNOWN.match(what) or _MISSING.match(what)
    if unknown is None:
        return RequestError(what, param=path or None)
    name = unknown.group(1)
    param = f"{path}.{name}" if path else name
    if _MISSING.match(what):
        return RequestError(f"`{param}` is required", param=param)
    owner = _NESTED.get(re.split(r"[.\[]", path)[0], body_type) if path else body_type
    return unknown_field(param, name, owner.__struct_fields__)


def unknown_field(param: str, name: str, known: Iterable[str]) -> RequestError:
    """The refusal of a field that nobody knows.

    Args:
        param: Its dotted path.
        name: Its last part.
        known: The names that are possible in its place.
    """
    nearest = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"Did you mean `{nearest[0]}`?" if nearest else "Remove it."
    return RequestError(f"unknown field `{param[:200]}`", param=param[:200], code="unknown_parameter", next_step=hint)


def _check_refused(body: Struct) -> None:
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if name in REFUSED and value is not None and not _is_neutral(name, value):
            raise unsupported_field(name, given=value, neutral=REFUSED[name])


def _is_neutral(name: str, value: object) -> bool:
    return any(type(value) is type(neutral) and value == neutral for neutral in REFUSED[name])


def unsupported_field(param: str, *, given: object, neutral: tuple[Any, ...] = ()) -> RequestError:
    """The refusal of a field, or of a value, that OpenAI or vLLM know and this server does not support."""
    allowed = " or ".join(["null", *(msgspec.json.encode(value).decode() for value in neutral)])
    return RequestError(
        f"`{param}` is not supported by this server",
        param=param,
        code="unsupported_parameter",
        given=given,
        allowed=allowed,
        next_step="Remove it.",
    )


def check_depth(value: object, param: str, depth: int = 0) -> None:
    """Refuses free-form JSON nested deeper than `MAX_DEPTH`.

    Raises:
        RequestError: With `param`.
    """
    if depth > MAX_DEPTH:
        raise RequestError(f"`{param}` is nested too deep", param=param, allowed=f"{MAX_DEPTH} levels")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_depth(item, param, depth + 1)


def field_name(body: Struct, name: str) -> str:
    """The request field that `name`, a parameter of the engine, came from."""
    if not isinstance(body, ChatBody):
        return name
    if name in {"prompt", "prompt_ids"}:
        return "messages"
    if name == "max_tokens" and body.max_completion_tokens is not None:
        return "max_completion_tokens"
    return "top_logprobs" if name == "logprobs" else name
