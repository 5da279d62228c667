"""What the instances of a model tell each other about requests to the one engine that they share."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from llmpack.bundle.triton_runtime.failures import Failure
from llmpack.bundle.triton_runtime.instance_group import LENGTH, encode, is_same_user
from llmpack.bundle.triton_runtime.text_engine import Ask
from llmpack.bundle.triton_runtime.text_responses import OutputTensors


@dataclass(frozen=True, slots=True)
class Opened:
    """A guest's request; `number` is its name on this connection."""

    number: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Closed:
    """The client of a request is gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """The guest is being finalized."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One response."""

    number: int
    tensors: OutputTensors
    is_final: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The last response, an error."""

    number: int
    failure: Failure


class Channel:
    """Messages over one connection, from and to one event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_trusted(self) -> bool:
        """Whether the other end is the same user."""
        return is_same_user(self._writer.get_extra_info("socket"))

    async def receive(self) -> Any:
        """The next message; None when the other end is gone."""
        try:
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(size))  # of the same user
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def send(self, message: object) -> None:
        """Sends a message, or nothing when the other end is gone: `receive` tells."""
        with suppress(ConnectionError):
            self._writer.write(encode(message))
            await self._writer.drain()

    async def close(self) -> None:
        """Ends the connection once everything is sent."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
