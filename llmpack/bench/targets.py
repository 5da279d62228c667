"""What a load can be run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from llmpack.artifact.reader import Artifact
from llmpack.artifact.requirements import check_runtime
from llmpack.bench.engine_load import EngineLoad, TimedRunner
from llmpack.bench.http_load import HttpLoad, HttpRequest
from llmpack.bench.memory import read_peak_bytes, reset_peak
from llmpack.bench.prompt_text import to_text
from llmpack.bench.timing import Round
from llmpack.bench.workload import PlannedRequest
from llmpack.runtime.load import load_runner
from llmpack.runtime.tokenizer import Tokenizer

ENGINE = "engine"


class Target(Protocol):
    """Something that runs loads."""

    @property
    def name(self) -> str:
        """As the report calls it."""
        ...

    def run(self, requests: Sequence[PlannedRequest], concurrency: int) -> Round:
        """One round."""
        ...

    def peak_memory_bytes(self) -> int | None:
        """Largest resident size; None where nobody can tell."""
        ...


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """The artifact's engine in this process."""

    load: EngineLoad
    name: str = ENGINE

    @classmethod
    def of(cls, artifact: Artifact, tokenizer: Tokenizer, num_threads: int = 0) -> Self:
        """The loaded engine of an artifact.

        Raises:
            ArtifactError: This environment may not load the programs.
            EngineError: A program cannot be loaded.
        """
        check_runtime(artifact.manifest)
        runner = TimedRunner(load_runner(artifact.path, artifact.manifest, num_threads=num_threads))
        return cls(EngineLoad(runner, tokenizer))

    def run(self, requests: Sequence[PlannedRequest], concurrency: int) -> Round:
        """One round; the peak of memory starts again with it."""
        reset_peak()
        return self.load.run(requests, concurrency)

    def peak_memory_bytes(self) -> int | None:
        """Of this process since the last round began."""
        return read_peak_bytes()


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server, ours or another.

    Attributes:
        name: As the report calls it.
        load: Asks it.
        tokenizer: Turns prompts into text; None sends ids.
        process_id: Of our own server.
    """

    name: str
    load: HttpLoad
    tokenizer: Tokenizer | None
    process_id: int | None = None

    def run(self, requests: Sequence[PlannedRequest], concurrency: int) -> Round:
        """One round."""
        return self.load.run([to_http(request, self.tokenizer) for request in requests], concurrency)

    def peak_memory_bytes(self) -> int | None:
        """Of our own server since it started."""
        return None if self.process_id is None else read_peak_bytes(self.process_id)


def to_http(request: PlannedRequest, tokenizer: Tokenizer | None) -> HttpRequest:
    """The request with its prompt as text, or as ids without a tokenizer."""
    if tokenizer is None:
        return HttpRequest(request.prompt_ids, len(request.prompt_ids), request.max_tokens)
    text, num_tokens = to_text(tokenizer, request.prompt_ids)
    return HttpRequest(text, num_tokens, request.max_tokens)
