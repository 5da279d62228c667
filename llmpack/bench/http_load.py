"""Runs a load on a server: as many clients as the concurrency, each sending its next request when its last is done."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llmpack.bench.http_connection import Connection, Origin
from llmpack.bench.timing import RequestTimes, Round
from llmpack.errors import BenchError

Prompt = Sequence[int] | str


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request with its prompt in the form in which it is sent.

    Attributes:
        prompt: Token ids or text.
        num_prompt_tokens: Its length; None when only the server can tell.
        max_tokens: Tokens of the output.
    """

    prompt: Prompt
    num_prompt_tokens: int | None
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Event:
    """What one event of a stream says.

    Attributes:
        has_text: It carries output.
        num_prompt_tokens: Of the request, where the event tells.
        num_output_tokens: Of the request so far or of this event, as the protocol has it; None where it does not tell.
    """

    has_text: bool
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None


class Dialect(Protocol):
    """How a server is asked for a greedy, streamed completion that does not end early."""

    @property
    def path(self) -> str:
        """Where requests go."""
        ...

    def body(self, request: HttpRequest) -> Mapping[str, Any]:
        """The JSON body of a request."""
        ...

    def read(self, data: bytes) -> Event | None:
        """An event; None when it says that the stream is over.

        Raises:
            BenchError: The event is an error, or not understood.
        """
        ...

    def count(self, request: HttpRequest, events: Sequence[Event]) -> int | None:
        """Output tokens of a request; None when the server did not tell."""
        ...


@dataclass(frozen=True, slots=True)
class OpenAICompletions:
    """`/v1/completions` as vLLM, llama.cpp, OpenVINO Model Server and llmpack have it.

    `ignore_eos` is vLLM's extension. Tokens are counted by the usage at the end of the stream.

    Attributes:
        model: Its name on the server.
    """

    model: str

    @property
    def path(self) -> str:
        """Where requests go."""
        return "/v1/completions"

    def body(self, request: HttpRequest) -> Mapping[str, Any]:
        """The JSON body of a request."""
        return {
            "model": self.model,
            "prompt": request.prompt if isinstance(request.prompt, str) else list(request.prompt),
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def read(self, data: bytes) -> Event | None:
        """An event; None for [DONE]."""
        if data == b"[DONE]":
            return None
        body = parse_event(data)
        usage = body.get("usage") or {}
        has_text = any(choice.get("text") for choice in body.get("choices", ()))
        return Event(has_text, usage.get("prompt_tokens"), usage.get("completion_tokens"))

    def count(self, request: HttpRequest, events: Sequence[Event]) -> int | None:
        """The usage's count."""
        counts = [event.num_output_tokens for event in events if event.num_output_tokens is not None]
        return counts[-1] if counts else None


def parse_event(data: bytes) -> dict[str, Any]:
    """The JSON object of an event.

    Raises:
        BenchError: It is none, or reports an error.
    """
    try:
        body = json.loads(data)
    except ValueError as error:
        raise BenchError("an event of the stream is not JSON", given=data) from error
    if not isinstance(body, dict) or body.get("error"):
        raise BenchError("the server reports an error in the stream", given=body)
    return body


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """Runs loads on one server.

    Attributes:
        origin: The server.
        dialect: How it is asked.
        headers: Sent with every request, such as an API key.
    """

    origin: Origin
    dialect: Dialect
    headers: Mapping[str, str]

    def run(self, requests: Sequence[HttpRequest], concurrency: int) -> Round:
        """Sends all requests and waits for the last to be complete.

        Raises:
            BenchError: The server cannot be reached, refuses a request, or does not count its tokens.
        """
        return asyncio.run(self._run(requests, concurrency))

    async def _run(self, requests: Sequence[HttpRequest], concurrency: int) -> Round:
        jobs = enumerate(requests)
        times: dict[int, RequestTimes] = {}
        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(min(concurrency, len(requests))):
                    clients.create_task(self._work(jobs, times))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the other clients were cancelled for it
        return Round(tuple(times[index] for index in sorted(times)))

    async def _work(self, jobs: Iterator[tuple[int, HttpRequest]], times: dict[int, RequestTimes]) -> None:
        """One client: takes jobs until none is left."""
        async with Connection(self.origin, self.headers) as connection:
            for index, request in jobs:
                times[index] = await self._ask(connection, request)

    async def _ask(self, connection: Connection, request: HttpRequest) -> RequestTimes:
        body = self.dialect.body(request)
        events, arrivals_s = [], []
        sent_s = time.perf_counter()
        async for data in connection.stream(self.dialect.path, body):
            now_s = time.perf_counter()
            event = self.dialect.read(data)
            if event is not None:
                events.append(event)
                if event.has_text:
                    arrivals_s.append(now_s)
        ended_s = time.perf_counter()
        num_output_tokens = self.dialect.count(request, events)
        if num_output_tokens is None:
            raise BenchError("the server does not count its tokens in the stream", where=connection.origin.url)
        told = [event.num_prompt_tokens for event in events if event.num_prompt_tokens is not None]
        num_prompt_tokens = told[-1] if told else request.num_prompt_tokens or 0
        return RequestTimes(sent_s, tuple(arrivals_s) or (ended_s,), ended_s, num_prompt_tokens, num_output_tokens)


def find_model(origin: Origin, headers: Mapping[str, str]) -> str:
    """The first model that an OpenAI-compatible server lists.

    Raises:
        BenchError: It cannot be reached or lists none.
    """

    async def ask() -> Any:
        async with Connection(origin, headers) as connection:
            return await connection.get("/v1/models")

    listed = asyncio.run(ask())
    try:
        return str(listed["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise BenchError(
            "the server lists no model",
            where=f"{origin.url}/v1/models",
            given=listed,
            next_step="Name it with --model.",
        ) from error
