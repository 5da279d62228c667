"""Runs the server in this process until it is told to stop.

    SIGTERM or SIGINT   no new requests, /health 503; running ones may finish for `shutdown_timeout_s`, the rest are
                        aborted; exit code 0
    a second signal     at once; 128 + signal
    the engine dies     open requests fail, /health 503, and after a moment exit code 1 for the supervisor to see

While it drains, the server goes on listening, so that probes and balancers are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from llmpack.errors import UsageError
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.server.app import create_app
from llmpack.server.context import Lifecycle
from llmpack.server.options import ServerOptions
from llmpack.server.served_model import ServedModel

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_BYTES_S = 5
_POLL_S = 0.2
_DEATH_NOTICE_S = 1.0


def serve(
    engine: AsyncEngine,
    model: ServedModel,
    options: ServerOptions,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> int:
    """Serves until a signal comes or the engine dies, and returns the exit code.

    Args:
        engine: Started here if it is not, and stopped at the end.
        model: What it serves.
        options: HTTP settings.
        on_ready: Called with the server's URL once it answers.

    Raises:
        UsageError: The address cannot be listened on.
    """
    listener = _listen(options.host, options.port)
    server = GracefulServer(engine, model, options, on_ready=on_ready)
    engine.start()
    try:
        server.run(sockets=[listener])
    finally:
        engine.shutdown(0.0)
    return server.exit_code


class GracefulServer(uvicorn.Server):
    """Uvicorn, with the shutdown described above.

    Attributes:
        exit_code: For the process, once `run` has returned.
        lifecycle: Shared with the application.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        model: ServedModel,
        options: ServerOptions,
        *,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        self.exit_code = 0
        self.lifecycle = Lifecycle()
        self._engine = engine
        self._options = options
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(_config(create_app(engine, model, options, self.lifecycle), options))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the server and begins to watch the engine."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._spawn(self._watch_engine())
        if self._on_ready is not None and sockets:
            self._on_ready(_url(sockets[0]))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to drain; the second time, stops at once."""
        if self._loop is None or self.lifecycle.is_draining:
            self._exit_now(128 + sig)
            return
        self.lifecycle.is_draining = True
        self._loop.call_soon_threadsafe(lambda: self._spawn(self._drain()))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals while serving; unlike uvicorn's own, does not raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        logger.info("draining for up to %s s", self._options.shutdown_timeout_s)
        await asyncio.to_thread(self._engine.shutdown, self._options.shutdown_timeout_s)
        self.should_exit = True

    async def _watch_engine(self) -> None:
        while self._engine.errored is None:
            await asyncio.sleep(_POLL_S)
        logger.critical("the engine died; the server exits")
        await asyncio.sleep(_DEATH_NOTICE_S)
        self.exit_code = 1
        self.should_exit = True

    def _exit_now(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.force_exit = True
        self.should_exit = True
        # The drain that goes on in a worker thread would hold up the end of the event loop.
        threading.Thread(target=self._engine.shutdown, args=(0.0,), daemon=True).start()


def _config(app: Starlette, options: ServerOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=options.keep_alive_timeout_s,
        timeout_graceful_shutdown=_LAST_BYTES_S,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(
            f"cannot listen: {error.strerror or error}",
            where="--host, --port",
            given=f"{host}:{port}",
            next_step="Choose another port, or 0 for a free one.",
        ) from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
