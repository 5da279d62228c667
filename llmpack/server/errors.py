"""OpenAI's error object, and the one place that turns exceptions into it.

Every error leaves the server as `{"error": {"message", "type", "param", "code"}}`, on every route, with all four keys.
Source: OpenAI's OpenAPI document, schema `Error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from llmpack.errors import EngineError, LlmpackError, QueueFull, RequestError

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


@dataclass(frozen=True)
class ErrorObject:
    """What a client is told.

    Attributes:
        status: HTTP status.
        message: For people.
        param: Dotted path of the request field at fault, or None.
        code: Machine-readable, or None.
        headers: Further response headers.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """OpenAI's error type, which follows from the status."""
        return SERVER_ERROR if self.status >= 500 else INVALID_REQUEST

    def encode(self) -> bytes:
        """The JSON body."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


class ApiError(Exception):
    """An answer that is not a success; raised by handlers, answered by `error_response`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.error = ErrorObject(status, message, param, code, headers or {})
        super().__init__(message)


class ClientGone(Exception):
    """The client closed its connection before the answer was ready; nobody reads what is sent."""


def error_object(error: Exception) -> ErrorObject:
    """What the client is told about `error`; says nothing of the inside for errors that nobody foresaw."""
    match error:
        case ApiError():
            return error.error
        case QueueFull():
            retry = {"Retry-After": str(error.retry_after_s)}
            return ErrorObject(error.status, str(error), error.param, error.code, retry)
        case RequestError():
            return ErrorObject(error.status, str(error), error.param, error.code)
        case HTTPException():
            return _routing_error(error)
        case EngineError():
            return ErrorObject(500, "The engine stopped; the server is about to exit.", code="engine_dead")
    message = str(error) if isinstance(error, LlmpackError) else "Internal server error."
    return ErrorObject(500, message, code="internal_error")


def _routing_error(error: HTTPException) -> ErrorObject:
    codes = {404: "not_found", 405: "method_not_allowed"}
    messages = {404: "There is no such route.", 405: "This route does not answer that method; see Allow."}
    message = messages.get(error.status_code, error.detail)
    return ErrorObject(error.status_code, message, None, codes.get(error.status_code), dict(error.headers or {}))


def error_response(error: ErrorObject) -> Response:
    """The error as an HTTP response."""
    return Response(error.encode(), error.status, dict(error.headers), "application/json")
