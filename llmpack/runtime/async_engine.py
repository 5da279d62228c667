"""The engine in a thread of its own, behind asyncio streams.

    event loop thread(s)                         engine thread
    submit() --- checks, then inbox ----------->  add_all
    Stream.abort() ------- inbox -------------->  abort
                                                  step() ... step()
    Stream <--- one wake-up per step and loop --  outputs

The lock is held for moments only, never during a step, so an event loop never waits for the model.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from llmpack.errors import EngineError, QueueFull, RequestError
from llmpack.runtime.admission import find_rejection_reason
from llmpack.runtime.engine import Engine
from llmpack.runtime.metrics import EngineMetrics
from llmpack.runtime.request import GenerationRequest, SequenceOutput
from llmpack.runtime.stream import Stream

logger = logging.getLogger(__name__)

_RETRY_AFTER_SHUTDOWN_S = 10


class AsyncEngine:
    """Serves many streams, of any number of event loops, from one engine.

    Args:
        engine: Used by nobody else from now on.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._condition = threading.Condition()  # guards all below
        self._inbox: list[Callable[[], None]] = []
        self._streams: dict[str, Stream] = {}
        self._drain_until_s: float | None = None  # on the engine's clock; set by shutdown
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether requests are taken: started, not dead and not shutting down."""
        is_alive = self._thread is not None and self._thread.is_alive()
        return is_alive and self._error is None and self._drain_until_s is None

    @property
    def errored(self) -> BaseException | None:
        """What killed the engine's thread, or None."""
        return self._error

    @property
    def metrics(self) -> EngineMetrics:
        """The engine's metrics; `metrics.snapshot()` may be called from any thread."""
        return self._engine.metrics

    @property
    def engine(self) -> Engine:
        """The engine, for its `shape`, `rules` and `tokenizer`, which never change; nothing else is thread-safe."""
        return self._engine

    def check_health(self) -> None:
        """Returns if the engine serves.

        Raises:
            EngineError: It was not started, is shut down or died.
        """
        if self._error is not None:
            raise _dead(self._error)
        if self._thread is None or not self._thread.is_alive():
            raise EngineError("the engine is not running", next_step="Call start() before the first request.")

    def start(self) -> None:
        """Starts the engine's thread; does nothing when it is started already."""
        with self._condition:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="llmpack-engine", daemon=True)
                self._thread.start()
                atexit.register(self.shutdown, 0.0)  # a daemon thread must not be killed inside a compiled program

    def submit(self, requests: Sequence[GenerationRequest]) -> Stream:
        """Queues all requests, or none, and returns the stream of their outputs.

        Must be called from a running event loop, the one that will read the stream. Never waits for the engine.

        Raises:
            RequestError: As `AdmissionRules.check` says; QueueFull also while shutting down.
            EngineError: The engine does not run.
        """
        self.check_health()
        ids = tuple(request.request_id for request in requests)
        stream = Stream(ids, asyncio.get_running_loop(), self._abort)
        with self._condition:
            self._admit(requests)
            self._streams.update(dict.fromkeys(ids, stream))
            self._send(partial(self._engine.add_all, tuple(requests), arrived_s=self._engine.clock()))
        return stream

    def shutdown(self, drain_timeout_s: float = 0.0) -> None:
        """Takes no more requests, gives the live ones `drain_timeout_s` seconds, aborts the rest, ends the thread.

        Blocks until the thread has ended: from an event loop call it with `asyncio.to_thread`, so that streams go on
        being read. A second call, with a shorter time, shortens the first. Does nothing when not running.
        """
        with self._condition:
            until_s = self._engine.clock() + drain_timeout_s
            self._drain_until_s = until_s if self._drain_until_s is None else min(until_s, self._drain_until_s)
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self.shutdown)

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        """Refuses as the engine would. `_streams` holds all ids that the engine holds, so the engine never refuses."""
        try:
            if self._drain_until_s is not None:
                raise QueueFull("the server is shutting down", retry_after_s=_RETRY_AFTER_SHUTDOWN_S)
            self._engine.rules.check(requests, self._streams)
        except RequestError as error:
            self._engine.metrics.count_rejection(find_rejection_reason(error))
            raise

    def _abort(self, stream: Stream) -> None:
        with self._condition:
            for request_id in stream.request_ids:
                if self._streams.get(request_id) is stream:  # not finished, nor taken by a later stream
                    self._send(partial(self._engine.abort, request_id))

    def _send(self, command: Callable[[], None]) -> None:
        self._inbox.append(command)
        self._condition.notify()

    def _run(self) -> None:
        try:
            while self._obey():
                self._deliver(self._engine.step())
        except BaseException as error:  # whatever it is, no stream may wait for ever
            self._die(error)

    def _obey(self) -> bool:
        """Sleeps until there is something to do, carries out the inbox and says whether to go on."""
        with self._condition:
            self._condition.wait_for(self._has_reason_to_wake)
            commands, self._inbox = self._inbox, []
            drain_until_s = self._drain_until_s
        for command in commands:
            command()
        if drain_until_s is None:
            return True
        if self._engine.clock() >= drain_until_s:
            for request_id in tuple(self._engine.live_ids):
                self._engine.abort(request_id)
        return self._engine.has_work

    def _has_reason_to_wake(self) -> bool:
        return bool(self._inbox) or self._engine.has_work or self._drain_until_s is not None

    def _deliver(self, outputs: Sequence[SequenceOutput]) -> None:
        touched: set[Stream] = set()
        with self._condition:
            for output in outputs:
                stream = self._streams[output.request_id]
                touched.add(stream)
                if output.finish_reason is not None:  # before the reader can know, so that it may use the id again
                    del self._streams[output.request_id]
                stream.put(output)
        for orphan in _wake_all(touched):
            self._abort(orphan)

    def _die(self, error: BaseException) -> None:
        logger.critical("the engine stopped", exc_info=error)
        with self._condition:
            self._error = error
            streams, self._streams = self._streams, {}
        readers = set(streams.values())
        for stream in readers:
            stream.fail(_dead(error))
        _wake_all(readers)


def _wake_all(streams: Iterable[Stream]) -> list[Stream]:
    """Wakes the readers with one call per event loop; returns the streams whose loop is closed."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Stream]] = {}
    for stream in streams:
        by_loop.setdefault(stream.loop, []).append(stream)
    orphans: list[Stream] = []
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_wake_each, group)
        except RuntimeError:  # the loop is closed: nobody will ever read these
            orphans += group
    return orphans


def _wake_each(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.wake()


def _dead(error: BaseException) -> EngineError:
    dead = EngineError("the engine stopped", given=repr(error), next_step="Restart the server; see its log.")
    dead.__cause__ = error
    return dead
