"""GET /health, GET and POST /ping, GET /version."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from llmpack import __version__
from llmpack.server.context import context_of, json_response
from llmpack.server.errors import ErrorObject, error_response


async def health(request: Request) -> Response:
    """200 and nothing while new requests are served, else 503. Never waits for the engine."""
    context = context_of(request)
    if context.is_ready:
        return Response()
    why = "shutting down" if context.lifecycle.is_draining else "not running"
    return error_response(ErrorObject(503, f"The engine is {why}.", code="unavailable"))


async def version(_request: Request) -> Response:
    """The version of llmpack."""
    return json_response(msgspec.json.encode({"version": __version__}))
