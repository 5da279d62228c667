r"""Server-sent events, written by hand: `data: `, one line of JSON, two line feeds; each event in one send.

    HTTP head
    data: {...opening chunks...}\n\n          at once
    : keep-alive\n\n                          while nothing else is sent for long
    data: {...one or more per output...}\n\n
    data: {...usage...}\n\n                   if asked for
    data: [DONE]\n\n

After the head an error can only be an event: `data: {"error": {...}}`, then `[DONE]`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llmpack.runtime.request import SequenceOutput
from llmpack.runtime.stream import Stream
from llmpack.server.errors import ApiError, error_object

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ChunkWriter(Protocol):
    """Turns outputs into the chunks of one route."""

    def opening(self) -> Iterable[msgspec.Struct]:
        """Chunks that need no output yet."""
        ...

    def pieces(self, output: SequenceOutput) -> Iterable[msgspec.Struct]:
        """Chunks for one output; text always goes before the chunk with the finish reason."""
        ...

    def closing(self) -> Iterable[msgspec.Struct]:
        """Chunks after all finish reasons."""
        ...


def event(data: bytes) -> bytes:
    """One event; `data` is JSON and so has no raw line feed."""
    return b"data: " + data + b"\n\n"


async def write_events(
    writer: ChunkWriter, stream: Stream, check_output: Callable[[SequenceOutput], None]
) -> AsyncIterator[bytes]:
    """All events of an answer, `[DONE]` included, whatever happens.

    Args:
        writer: Makes the chunks.
        stream: The engine's outputs.
        check_output: Raises for a sequence that the server aborted.
    """
    encode = msgspec.json.encode
    try:
        for chunk in writer.opening():
            yield event(encode(chunk))
        async for output in stream:
            for chunk in writer.pieces(_without_abort(output)):
                yield event(encode(chunk))
            check_output(output)
        for chunk in writer.closing():
            yield event(encode(chunk))
    except Exception as error:  # the head is out, so this is the only way left to say it
        if not isinstance(error, ApiError):
            logger.exception("a stream broke off")
        yield event(error_object(error).encode())
    yield DONE


def _without_abort(output: SequenceOutput) -> SequenceOutput:
    """The text that came before an abort is still the client's; the abort itself becomes an error."""
    return replace(output, finish_reason=None) if output.finish_reason == "abort" else output


class EventStream(Response):
    """An answer of events. Frees the slots when the client leaves; comments while there is nothing to say.

    Args:
        events: Each is sent by itself, when it comes. A slow client holds up nobody else: the engine merges what waits.
        stream: Aborted when the client leaves, closed at the end.
        comment_interval_s: Silence after which a comment is sent.
    """

    def __init__(self, events: AsyncIterator[bytes], stream: Stream, comment_interval_s: float) -> None:
        super().__init__()
        self._events = events
        self._stream = stream
        self._comment_interval_s = comment_interval_s
        self._last_sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        watcher = asyncio.create_task(self._watch(receive, send))
        try:
            async for data in self._events:
                await self._send(send, data)
        finally:
            watcher.cancel()
            await self._stream.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        self._last_sent_s = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _watch(self, receive: Receive, send: Send) -> None:
        while True:
            try:
                message = await asyncio.wait_for(receive(), self._comment_interval_s)
            except TimeoutError:
                await self._comment(send)
                continue
            if message["type"] == "http.disconnect":
                self._stream.abort()
                return

    async def _comment(self, send: Send) -> None:
        silent_s = asyncio.get_running_loop().time() - self._last_sent_s
        if silent_s >= self._comment_interval_s / 2:
            await self._send(send, KEEP_ALIVE)
