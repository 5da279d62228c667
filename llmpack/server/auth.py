"""API keys. Every path is closed but the few that are named here."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from llmpack.server.errors import ErrorObject, error_response

OPEN_PATHS = frozenset({"/health", "/ping", "/version"})


class ApiKeyMiddleware:
    """Answers 401 without one of the keys; the body is not read.

    Paths are compared as they came: a path that is spelt differently is not open, and routing does not find it.
    OPTIONS passes, because browsers send preflights without keys.

    Args:
        app: What is behind.
        keys: Any of them opens; none leaves everything open.
        open_paths: Exact paths that need no key.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Iterable[str] = OPEN_PATHS) -> None:
        self._app = app
        self._keys = tuple(key.encode() for key in keys)
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on or answers it."""
        if scope["type"] != "http" or not self._keys or self._is_open(scope) or self._has_key(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        message = "No valid API key was given; send `Authorization: Bearer KEY`."
        error = ErrorObject(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await error_response(error)(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope["method"] == "OPTIONS" or scope["path"] in self._open_paths

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        raw = given.strip().encode("latin-1")
        matches = [hmac.compare_digest(raw, key) for key in self._keys]  # all of them: the time tells nothing
        return scheme.lower() == "bearer" and any(matches)
