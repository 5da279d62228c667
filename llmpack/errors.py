"""Every error that llmpack raises on purpose.

    LlmpackError                      exit code 2 unless said otherwise
    |-- UsageError                    an argument or option that cannot be used
    |-- CheckpointError               the model that comes in
    |   |-- CheckpointNotFound        no such directory, file or repository
    |   |-- CheckpointAccessDenied    gated or private repository
    |   |-- UnsafeCheckpoint          pickled weights, remote code
    |   `-- CorruptCheckpoint         truncated, missing, left-over or misshapen tensors
    |-- UnsupportedArchitecture       a model type, or a setting of one, that has no row
    |-- PlanError                     shapes that cannot be compiled
    |-- CompileError                  a compile that failed
    |   `-- ProofFailed               the artifact disagrees with transformers (exit code 1)
    |-- ArtifactError                 the artifact cannot be used
    |   |-- ManifestError             unreadable, newer or inconsistent manifest
    |   `-- IntegrityError            files missing, extra or altered (exit code 1)
    |-- ValidationFailed              a serving config disagrees with the artifact (exit code 1)
    |-- UnreadableConfig              a file that cannot be read as a serving config
    |-- FixError                      a serving config that cannot be corrected where it lies
    |-- EngineError                   the engine stopped and cannot serve
    |-- BenchError                    a measurement that could not be made
    `-- RequestError (ValueError)     one request is refused; the engine goes on
        |-- ContextLengthExceeded
        |-- DuplicateRequest
        `-- QueueFull                 try again later

A message says what is wrong, where, what was given, what is allowed and what to do next. Build it with the
keyword arguments of `LlmpackError` so that none of the five is forgotten.
"""

from __future__ import annotations


class LlmpackError(Exception):
    """An error with its place, the offending value, the allowed values and the next step.

    Args:
        what: One sentence without a full stop.
        where: File, JSON pointer or option.
        given: The offending value; shown with `repr` and cut at 200 characters.
        allowed: What would have been accepted, in words.
        next_step: What the reader can do now.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        given: object | None = None,
        allowed: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.given = given
        self.allowed = allowed
        self.next_step = next_step
        super().__init__(self._compose())

    def _compose(self) -> str:
        parts = [self.what]
        if self.where is not None:
            parts.append(f"in {self.where}")
        message = " ".join(parts)
        if self.given is not None:
            message += f"; given: {_shorten(self.given)}"
        if self.allowed is not None:
            message += f"; allowed: {self.allowed}"
        if self.next_step is not None:
            message += f". {self.next_step}"
        return message


def _shorten(value: object, limit: int = 200) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


class UsageError(LlmpackError):
    """An argument or option that cannot be used."""


class CheckpointError(LlmpackError):
    """The checkpoint cannot be read."""


class CheckpointNotFound(CheckpointError):
    """No such directory, file or repository."""


class CheckpointAccessDenied(CheckpointError):
    """The repository is gated or private and the token does not open it."""


class UnsafeCheckpoint(CheckpointError):
    """Reading the checkpoint would run code (pickle, remote code)."""


class CorruptCheckpoint(CheckpointError):
    """Tensors are missing, left over, truncated or of another shape than the config says."""


class UnsupportedArchitecture(LlmpackError):
    """A model type, or a setting that changes the maths, that llmpack has no row for."""


class PlanError(LlmpackError):
    """The requested shapes cannot be compiled."""


class CompileError(LlmpackError):
    """The compile failed; nothing was written."""


class ProofFailed(CompileError):
    """The compiled programs disagree with transformers beyond the tolerance."""

    exit_code = 1


class ArtifactError(LlmpackError):
    """The artifact cannot be used."""


class ManifestError(ArtifactError):
    """The manifest is unreadable, newer than this llmpack, or contradicts itself."""


class IntegrityError(ArtifactError):
    """Files of the artifact are missing, extra or altered.

    Attributes:
        problems: One sentence per file, all of them.
    """

    exit_code = 1

    def __init__(self, what: str, *, problems: list[str], where: str | None = None) -> None:
        self.problems = problems
        listing = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{what}:\n{listing}", where=None, next_step=where and f"Artifact: {where}")


class ValidationFailed(LlmpackError):
    """A serving config disagrees with the artifact; all findings are named."""

    exit_code = 1


class UnreadableConfig(LlmpackError):
    """A file cannot be read as a serving config. A validation goes on with the others and reports it at the end."""


class FixError(LlmpackError):
    """A serving config changed meanwhile or cannot be written; it is as it was."""


class EngineError(LlmpackError):
    """The engine stopped; no request can be served until it is restarted."""


class BenchError(LlmpackError):
    """A measurement could not be made: a server that does not start or answer, a request that failed."""


class RequestError(LlmpackError, ValueError):
    """One request is refused. Servers answer with `status` and OpenAI's error object.

    Attributes:
        param: The request field at fault in OpenAI's dotted spelling, or None.
        code: OpenAI's machine-readable code, or None.
    """

    status = 400

    def __init__(
        self,
        what: str,
        *,
        param: str | None = None,
        code: str | None = None,
        given: object | None = None,
        allowed: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.param = param
        self.code = code
        super().__init__(what, given=given, allowed=allowed, next_step=next_step)


class ContextLengthExceeded(RequestError):
    """The prompt, or the prompt and max_tokens together, do not fit max_seq_len."""


class DuplicateRequest(RequestError):
    """A live request already has this id."""


class QueueFull(RequestError):
    """The bounded waiting queue is full.

    Attributes:
        retry_after_s: Seconds after which trying again is sensible.
    """

    status = 503

    def __init__(self, what: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(what, code="engine_overloaded", next_step=f"Try again in {retry_after_s} s.")
