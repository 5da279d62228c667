"""Lending an engine to the other instances of the model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from llmpack.bundle.triton_runtime.channel import Channel, Closed, Failed, Leaving, Opened, Sent
from llmpack.bundle.triton_runtime.failures import describe_failure
from llmpack.bundle.triton_runtime.metrics import Sharing
from llmpack.bundle.triton_runtime.text_engine import TextEngine
from llmpack.bundle.triton_runtime.text_responses import OutputTensors


class EngineHost:
    """Lends an engine to the other instances.

    Args:
        engine: What is lent.
        instance_name: That of the instance that holds it.
        report: Called with every error of a guest's request, in the event loop.
    """

    def __init__(self, engine: TextEngine, instance_name: str, report: Callable[[Exception], None]) -> None:
        self._engine = engine
        self._report = report
        self._names = {instance_name}
        self._guests: set[_Guest] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def sharing(self) -> Sharing:
        """Who uses the engine now."""
        return Sharing(1 + len(self._guests), sum(len(guest.tasks) for guest in self._guests))

    async def start(self, listener: socket.socket) -> None:
        """Serves those who connect from now on, and those who have done so already."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def stop_listening(self) -> None:
        """Takes no more guests."""
        if self._server is not None:
            self._server.close()

    async def close(self, timeout_s: float) -> None:
        """Waits until the guests' requests have had their last response, then ends the connections."""
        self.stop_listening()
        answers = [task for guest in self._guests for task in guest.tasks.values()]
        if answers:
            await asyncio.wait(answers, timeout=timeout_s)
        closing = [asyncio.ensure_future(guest.channel.close()) for guest in self._guests]
        if closing:
            await asyncio.wait(closing, timeout=timeout_s)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        channel = Channel(reader, writer)
        try:
            name = await channel.receive() if channel.is_trusted else None
            if isinstance(name, str) and name not in self._names:
                await self._welcome(channel, name)
            else:
                await channel.send(False)
        finally:
            await channel.close()

    async def _welcome(self, channel: Channel, name: str) -> None:
        self._names.add(name)
        guest = _Guest(channel, self._engine, self._report)
        self._guests.add(guest)
        await channel.send(True)
        await self._attend(guest, name)

    async def _attend(self, guest: _Guest, name: str) -> None:
        try:
            is_leaving = await guest.serve()
        finally:
            self._guests.discard(guest)
        if is_leaving:
            self.stop_listening()  # who comes from now on belongs to another load
        else:
            self._names.discard(name)  # it broke down; Triton starts it again under its name


class _Guest:
    """The requests of one other instance."""

    def __init__(self, channel: Channel, engine: TextEngine, report: Callable[[Exception], None]) -> None:
        self.channel = channel
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._engine = engine
        self._report = report

    async def serve(self) -> bool:
        """Obeys until the guest is gone, then cancels what is left; returns whether it said good-bye."""
        is_leaving = False
        while (message := await self.channel.receive()) is not None:
            if isinstance(message, Opened):
                self._begin(message)
            elif isinstance(message, Closed) and message.number in self.tasks:
                self.tasks[message.number].cancel()
            is_leaving |= isinstance(message, Leaving)
        for task in tuple(self.tasks.values()):
            task.cancel()
        return is_leaving

    def _begin(self, opened: Opened) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(opened))
        self.tasks[opened.number] = task
        task.add_done_callback(lambda _: self.tasks.pop(opened.number))

    async def _answer(self, opened: Opened) -> None:
        try:
            await self._engine.generate(opened.ask, _RemoteClient(self.channel, opened.number))
        except Exception as error:  # whatever it is, the client must get a last response
            self._report(error)
            await self.channel.send(Failed(opened.number, describe_failure(error)))


class _RemoteClient:
    """The client of a guest's request. The guest watches it: when it is gone, the request is cancelled from outside."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number

    async def send(self, tensors: OutputTensors, *, is_final: bool) -> None:
        """Sends one response."""
        await self._channel.send(Sent(self._number, tensors, is_final))

    async def check_cancelled(self) -> None:
        """Returns."""
