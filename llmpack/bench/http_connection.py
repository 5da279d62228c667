"""A plain HTTP/1.1 connection that reads event streams without getting in the way of what it measures.

It is httptools' parser, which uvicorn brings, on an asyncio stream: no pool, no redirects, no retries, so a request is
one write and an event is seen as soon as its bytes are there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httptools

from llmpack.errors import BenchError

_READ_BYTES = 1 << 16
_SILENCE_S = 600.0  # a long prompt on a small machine takes minutes; a server that hangs must not hang the benchmark


@dataclass(frozen=True, slots=True)
class Origin:
    """A server.

    Attributes:
        url: Without a path.
        host: Name or address.
        port: TCP port.
        is_tls: Whether it is https.
    """

    url: str
    host: str
    port: int
    is_tls: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """The server of an OpenAI base URL; a path of `/v1` may be there or not.

        Raises:
            BenchError: Not an http or https URL of a server.
        """
        allowed = "http://HOST:PORT, or the same with /v1"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BenchError(f"not a URL ({error})", where="--against", given=url, allowed=allowed) from error
        is_known = parts.scheme in ("http", "https") and parts.hostname
        if not is_known or parts.path.rstrip("/") not in ("", "/v1") or parts.query:
            raise BenchError(
                "not the URL of an OpenAI-compatible server", where="--against", given=url, allowed=allowed
            )
        is_tls = parts.scheme == "https"
        return cls(f"{parts.scheme}://{parts.netloc}", str(parts.hostname), port or (443 if is_tls else 80), is_tls)


class _Response:
    """Collects what httptools' parser reports; the names of the methods are httptools'."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.pieces: list[bytes] = []
        self.is_complete = False

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    def take(self) -> bytes:
        taken, self.pieces = b"".join(self.pieces), []
        return taken


class Connection:
    """One connection; a request must be read to its end before the next.

    Args:
        origin: The server.
        headers: Sent with every request.
    """

    def __init__(self, origin: Origin, headers: Mapping[str, str] | None = None) -> None:
        self.origin = origin
        self._headers = dict(headers or {})
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def get(self, path: str) -> Any:
        """The JSON document at `path`.

        Raises:
            BenchError: The server cannot be reached, or answers with an error or with no JSON.
        """
        body = b"".join([piece async for piece in self._request("GET", path, b"")])
        try:
            return json.loads(body)
        except ValueError as error:
            raise BenchError("the answer is not JSON", where=f"{self.origin.url}{path}", given=body) from error

    async def send(self, path: str) -> bytes:
        """The answer to a POST without a body.

        Raises:
            BenchError: The server cannot be reached or answers with an error.
        """
        return b"".join([piece async for piece in self._request("POST", path, b"")])

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """The data of each server-sent event of the answer to a JSON body; raises as `get` does."""
        rest = b""
        async for piece in self._request("POST", path, json.dumps(body).encode()):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield line[5:].strip()

    async def _request(self, method: str, path: str, body: bytes) -> AsyncIterator[bytes]:
        """The pieces of the answer's body as they come."""
        if self._streams is None:
            await self._connect()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(self._head(method, path, len(body)) + body)
        response = _Response()
        while not response.is_complete:
            await self._feed(reader, response)
            if response.pieces and response.parser.get_status_code() == 200:
                yield response.take()
        if not response.parser.should_keep_alive():
            await self._close()
        if response.parser.get_status_code() != 200:
            self._refuse(path, response)

    async def _feed(self, reader: asyncio.StreamReader, response: _Response) -> None:
        try:
            data = await asyncio.wait_for(reader.read(_READ_BYTES), _SILENCE_S)
            if not data:
                raise BenchError("the server closed the connection in the middle of an answer", where=self.origin.url)
            response.parser.feed_data(data)
        except TimeoutError as error:
            raise BenchError(f"the server was silent for {_SILENCE_S:.0f} s", where=self.origin.url) from error
        except (OSError, httptools.HttpParserError) as error:
            raise BenchError(f"the answer cannot be read ({error})", where=self.origin.url) from error

    def _refuse(self, path: str, response: _Response) -> None:
        text = response.take().decode("utf-8", "replace")
        status = response.parser.get_status_code()
        raise BenchError(f"the server answered with status {status}", where=f"{self.origin.url}{path}", given=text)

    def _head(self, method: str, path: str, num_bytes: int) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.origin.host}:{self.origin.port}"]
        lines += [f"Content-Length: {num_bytes}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _connect(self) -> None:
        origin = self.origin
        try:
            self._streams = await asyncio.open_connection(origin.host, origin.port, ssl=origin.is_tls or None)
        except OSError as error:
            raise BenchError(
                f"cannot connect ({error})", where=origin.url, next_step="Is the server running?"
            ) from error

    async def _close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                return  # it is closed all the same
