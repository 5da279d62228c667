"""Errors as Triton tells them to clients."""

from __future__ import annotations

from typing import Any

from llmpack.errors import EngineError, LlmpackError, QueueFull, RequestError


class Cancelled(Exception):
    """The client cancelled the request or is gone."""


def build_error(pb_utils: Any, error: BaseException) -> Any:
    """The `TritonError` for `error`: llmpack's errors in their own words, others only by their type.

    Codes: INVALID_ARG for what the client can mend, UNAVAILABLE for a full queue, CANCELLED, else INTERNAL.
    """
    kind = pb_utils.TritonError
    if isinstance(error, Cancelled):
        return kind("Request was cancelled", kind.CANCELLED)
    if isinstance(error, QueueFull):
        return kind(str(error), kind.UNAVAILABLE)
    if isinstance(error, RequestError):
        return kind(str(error), kind.INVALID_ARG)
    if isinstance(error, LlmpackError):
        return kind(str(error), kind.INTERNAL)
    return kind(f"internal error ({type(error).__name__}); see the server's log", kind.INTERNAL)


def is_foreseen(error: BaseException) -> bool:
    """Whether the error is one of the client's or of the moment, so that no log needs its traceback."""
    return isinstance(error, Cancelled | LlmpackError) and not isinstance(error, EngineError)
