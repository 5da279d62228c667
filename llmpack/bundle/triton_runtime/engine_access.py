"""Where an instance finds the engine: in itself, or in the instance that was first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llmpack.bundle.triton_runtime.engine_host import EngineHost
from llmpack.bundle.triton_runtime.engine_link import EngineLink
from llmpack.bundle.triton_runtime.instance_group import InstanceGroup, Meeting, meet
from llmpack.bundle.triton_runtime.loading import LoadedModel
from llmpack.bundle.triton_runtime.metrics import Sharing
from llmpack.bundle.triton_runtime.text_engine import TextEngine, build_metrics
from llmpack.bundle.triton_runtime.triton_calls import TritonCalls, log_failure


class EngineAccess:
    """The engine of one instance's group. All methods belong to one event loop.

    Args:
        load: Loads the model; called by the instance that holds the engine only.
        calls: Where the server is asked.
        group: The instances that share the engine; None when there is one alone.
    """

    def __init__(self, load: Callable[[], LoadedModel], calls: TritonCalls, group: InstanceGroup | None) -> None:
        self._load = load
        self._calls = calls
        self._group = group
        self._lock = asyncio.Lock()
        self._engine: TextEngine | None = None
        self._watch: asyncio.Task[None] | None = None
        self._host: EngineHost | None = None
        self._link: EngineLink | None = None

    async def find(self) -> TextEngine | EngineLink:
        """The engine. When the instance that held it is gone, the first one that is asked loads it anew.

        Raises:
            pb_utils.TritonModelException: It cannot be loaded.
        """
        async with self._lock:
            if self._link is not None and self._link.is_gone:
                self._link = None
            if self._engine is None and self._link is None:
                await self._open()
        found = self._engine or self._link
        assert found is not None
        return found

    async def drain(self, timeout_s: float) -> None:
        """Gives what runs in this instance's engine that many seconds and then ends it, the guests' requests too."""
        if self._host is not None:
            self._host.stop_listening()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close, timeout_s)
        if self._host is not None:
            await self._host.close(timeout_s)

    async def close(self) -> None:
        """Ends what is left: the link to another's engine, the reports of this one's."""
        if self._link is not None:
            await self._link.close()
        if self._watch is not None:
            self._watch.cancel()

    async def _open(self) -> None:
        if self._group is None:
            await self._start_engine()
            return
        meeting = await asyncio.to_thread(meet, self._group)
        if meeting.role == "guest":
            self._link = await EngineLink.open(meeting.socket)
        else:
            await self._become_host(self._group, meeting)

    async def _become_host(self, group: InstanceGroup, meeting: Meeting) -> None:
        try:
            engine = await self._start_engine()
        except BaseException:
            meeting.socket.close()  # the others find out for themselves what is wrong
            raise
        self._host = EngineHost(engine, group.instance_name, self._report)
        await self._host.start(meeting.socket)

    async def _start_engine(self) -> TextEngine:
        model = await asyncio.to_thread(self._load)
        metrics = await self._calls.call(build_metrics, self._calls.pb_utils, model)
        engine = TextEngine(model, self._calls, metrics, self._read_sharing)
        self._watch = asyncio.get_running_loop().create_task(engine.watch_load())
        self._engine = engine
        return engine

    def _read_sharing(self) -> Sharing:
        return Sharing() if self._host is None else self._host.sharing

    def _report(self, error: Exception) -> None:
        self._calls.submit(log_failure, self._calls.pb_utils, error)
