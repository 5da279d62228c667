"""The ASGI application: routes, middleware and error handlers."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llmpack.errors import LlmpackError
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.server.auth import OPEN_PATHS, ApiKeyMiddleware
from llmpack.server.chat import create_chat_completion
from llmpack.server.completions import create_completion
from llmpack.server.context import Lifecycle, ServerContext
from llmpack.server.errors import ApiError, ClientGone, error_object, error_response
from llmpack.server.health import health, version
from llmpack.server.metrics import HttpMetrics, build_registry, metrics
from llmpack.server.middleware import (
    BodyLimitMiddleware,
    CorsMiddleware,
    ErrorBoundary,
    HttpMetricsMiddleware,
    RequestIdMiddleware,
)
from llmpack.server.models import list_models, retrieve_model
from llmpack.server.openapi import openapi
from llmpack.server.options import ServerOptions
from llmpack.server.served_model import ServedModel
from llmpack.server.tokenization import detokenize, tokenize, tokenizer_info

logger = logging.getLogger(__name__)

ROUTES = (
    Route("/v1/models", list_models),
    Route("/v1/models/{model:path}", retrieve_model),
    Route("/v1/completions", create_completion, methods=["POST"]),
    Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/tokenizer_info", tokenizer_info),
    Route("/health", health),
    Route("/ping", health, methods=["GET", "POST"]),
    Route("/version", version),
    Route("/metrics", metrics),
    Route("/openapi.json", openapi),
)

_CLIENT_GONE_STATUS = 499  # nobody reads it; it is for the metrics (Source: nginx)


def create_app(
    engine: AsyncEngine, model: ServedModel, options: ServerOptions | None = None, lifecycle: Lifecycle | None = None
) -> Starlette:
    """The application around a started engine.

    Args:
        engine: Started, and stopped, by the caller.
        model: What it serves.
        options: HTTP settings.
        lifecycle: The caller sets `is_draining` in it when new work is to be refused.
    """
    context = ServerContext(engine, model, options or ServerOptions(), lifecycle or Lifecycle())
    http_metrics = HttpMetrics()
    app = Starlette(
        routes=ROUTES,
        middleware=_middleware(context.options, http_metrics),
        exception_handlers={
            ApiError: _answer_error,
            LlmpackError: _answer_error,
            HTTPException: _answer_error,
            ClientGone: _answer_nobody,
        },
    )
    app.router.redirect_slashes = False
    app.state.context = context
    app.state.registry = build_registry(context, http_metrics)
    return app


def _middleware(options: ServerOptions, http_metrics: HttpMetrics) -> list[Middleware]:
    open_paths = OPEN_PATHS if options.protect_metrics else OPEN_PATHS | {"/metrics"}
    return [
        Middleware(RequestIdMiddleware),
        Middleware(HttpMetricsMiddleware, metrics=http_metrics),
        Middleware(
            CorsMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=("GET", "POST", "HEAD", "OPTIONS"),
            allow_headers=("*",),
            expose_headers=("X-Request-Id", "Retry-After"),
        ),
        Middleware(ErrorBoundary),
        Middleware(BodyLimitMiddleware, max_bytes=options.max_body_bytes),
        Middleware(ApiKeyMiddleware, keys=options.api_keys, open_paths=open_paths),
    ]


async def _answer_error(request: Request, error: Exception) -> Response:
    answer = error_object(error)
    if answer.status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, error)
    return error_response(answer)


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE_STATUS)
