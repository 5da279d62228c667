"""What happens to every request.

    RequestIdMiddleware      X-Request-Id in and out
    HttpMetricsMiddleware    counts answers and their time
    CorsMiddleware           browsers of other sites; also on errors
    ErrorBoundary            500 for what nobody foresaw
    BodyLimitMiddleware      413 from Content-Length, before anything is read
    auth.ApiKeyMiddleware    401
    (Starlette)              routing; the errors of `errors.py`

Outermost first. All of it is plain ASGI: streams pass through unbuffered.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from llmpack.server.errors import ErrorObject, error_object, error_response
from llmpack.server.metrics import HttpMetrics
from llmpack.server.parse import too_large

logger = logging.getLogger(__name__)

_PRINTABLE = re.compile(r"[ -~]{1,256}")
_UNMATCHED = "unmatched"


class RequestIdMiddleware:
    """Answers with the client's X-Request-Id, or with a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Adds the header to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _PRINTABLE.fullmatch(given) else uuid.uuid4().hex

        async def send_with_id(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class HttpMetricsMiddleware:
    """Counts every answer under its route's path pattern."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Measures one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.monotonic()
        status = 500

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            handler = getattr(scope.get("route"), "path", _UNMATCHED)
            self._metrics.observe(handler, scope["method"], status, time.monotonic() - started_s)


class CorsMiddleware(CORSMiddleware):
    """Starlette's, with refused preflights as error objects."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """200, or 400 with the same headers and OpenAI's body."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        refused = error_response(ErrorObject(400, f"{bytes(response.body).decode()}.", code="cors_refused"))
        for name, value in response.headers.items():
            if name not in {"content-length", "content-type"}:
                refused.headers[name] = value
        return refused


class ErrorBoundary:
    """Turns an exception that nobody foresaw into a 500 without its details, which go to the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on and catches what comes back."""
        has_begun = False

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:  # the one place where everything is caught
            if has_begun or scope["type"] != "http":
                raise  # the connection is cut, so that the client sees an unfinished body
            logger.exception("a request failed")
            await error_response(error_object(error))(scope, receive, send)


class BodyLimitMiddleware:
    """Refuses bodies whose Content-Length is too large; chunked ones are counted while they are read."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on or answers 413."""
        length = Headers(scope=scope).get("content-length", "0") if scope["type"] == "http" else "0"
        if length.isdecimal() and int(length) > self._max_bytes:
            await error_response(too_large(self._max_bytes).error)(scope, receive, send)
            return
        await self._app(scope, receive, send)
