"""Errors as Triton tells them to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from llmpack.errors import EngineError, LlmpackError, QueueFull, RequestError

FailureCode = Literal["INTERNAL", "INVALID_ARG", "UNAVAILABLE", "CANCELLED"]


class Cancelled(Exception):
    """The client cancelled the request or is gone."""


class EngineGone(EngineError):
    """The instance that held the engine ended before the request did."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a client is told.

    Attributes:
        code: That of Triton's error codes.
        message: The text.
    """

    code: FailureCode
    message: str


class RemoteFailure(Exception):
    """A request failed in another instance, which has told its log.

    Attributes:
        failure: What the client is told.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def describe_failure(error: BaseException) -> Failure:
    """What a client is told of `error`: llmpack's errors in their own words, others only by their type.

    Codes: INVALID_ARG for what the client can mend, UNAVAILABLE for what another try can, CANCELLED, else INTERNAL.
    """
    if isinstance(error, RemoteFailure):
        return error.failure
    if isinstance(error, Cancelled):
        return Failure("CANCELLED", "Request was cancelled")
    if isinstance(error, QueueFull | EngineGone):
        return Failure("UNAVAILABLE", str(error))
    if isinstance(error, RequestError):
        return Failure("INVALID_ARG", str(error))
    if isinstance(error, LlmpackError):
        return Failure("INTERNAL", str(error))
    return Failure("INTERNAL", f"internal error ({type(error).__name__}); see the server's log")


def build_error(pb_utils: Any, failure: Failure) -> Any:
    """The `TritonError` of a failure."""
    return pb_utils.TritonError(failure.message, getattr(pb_utils.TritonError, failure.code))


def is_foreseen(error: BaseException) -> bool:
    """Whether the error is one of the client's or of the moment, so that no log needs its traceback."""
    return isinstance(error, Cancelled | EngineGone | RemoteFailure) or (
        isinstance(error, LlmpackError) and not isinstance(error, EngineError)
    )
