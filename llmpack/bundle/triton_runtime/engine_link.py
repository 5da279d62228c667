"""The engine of another instance, reached over a connection."""

from __future__ import annotations

import asyncio
import itertools
import socket

from llmpack.bundle.triton_runtime.channel import Channel, Closed, Failed, Leaving, Opened, Sent
from llmpack.bundle.triton_runtime.failures import Cancelled, EngineGone, RemoteFailure
from llmpack.bundle.triton_runtime.text_engine import Ask, Client
from llmpack.bundle.triton_runtime.triton_calls import POLL_S


class EngineLink:
    """The engine of another instance, with the methods of `TextEngine` that requests need.

    Args:
        channel: To the host, which has welcomed this instance.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._inboxes: dict[int, asyncio.Queue[Sent | Failed | None]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def open(cls, connection: socket.socket) -> EngineLink:
        """The link over a connection."""
        return cls(Channel(*await asyncio.open_unix_connection(sock=connection)))

    @property
    def is_gone(self) -> bool:
        """Whether the host has ended."""
        return self._reading.done()

    async def generate(self, ask: Ask, client: Client) -> None:
        """Sends all responses of a request.

        Raises:
            Cancelled: The client is gone; the host has been told.
            RemoteFailure: The request failed there.
            EngineGone: The host ended.
        """
        number = next(self._numbers)
        inbox = self._inboxes[number] = asyncio.Queue()
        await self._channel.send(Opened(number, ask))
        try:
            while not await self._forward(inbox, client):
                pass
        except Cancelled:
            await self._channel.send(Closed(number))
            raise
        finally:
            del self._inboxes[number]

    async def close(self) -> None:
        """Says good-bye."""
        await self._channel.send(Leaving())
        await self._channel.close()
        await self._reading

    async def _forward(self, inbox: asyncio.Queue[Sent | Failed | None], client: Client) -> bool:
        """Passes on one response if one comes soon; returns whether it was the last."""
        await client.check_cancelled()
        if self.is_gone and inbox.empty():
            raise _gone()
        try:
            message = await asyncio.wait_for(inbox.get(), POLL_S)
        except TimeoutError:
            return False
        if message is None:
            raise _gone()
        if isinstance(message, Failed):
            raise RemoteFailure(message.failure)
        await client.send(message.tensors, is_final=message.is_final)
        return message.is_final

    async def _read(self) -> None:
        while (message := await self._channel.receive()) is not None:
            if message.number in self._inboxes:  # else its client is gone
                self._inboxes[message.number].put_nowait(message)
        for inbox in self._inboxes.values():
            inbox.put_nowait(None)


def _gone() -> EngineGone:
    return EngineGone("the instance that held the engine ended", next_step="Send the request again.")
