"""Asynchronous work for callers that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_Handle = tuple[asyncio.AbstractEventLoop, "asyncio.Task[Any]"]


def run_blocking(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, done in an event loop and a thread of its own.

    So it may be called where a loop runs already (notebooks), and Ctrl-C cancels the work before it is raised.
    """
    begun: Future[_Handle] = Future()
    with ThreadPoolExecutor(max_workers=1) as executor:
        result = executor.submit(asyncio.run, _announce(work, begun))
        try:
            return result.result()
        except BaseException:
            if not result.done():
                _cancel(begun.result())
            raise


async def _announce(work: Coroutine[Any, Any, _Result], begun: Future[_Handle]) -> _Result:
    task = asyncio.current_task()
    assert task is not None
    begun.set_result((asyncio.get_running_loop(), task))
    return await work


def _cancel(handle: _Handle) -> None:
    loop, task = handle
    with suppress(RuntimeError):  # it ended a moment ago and its loop is closed
        loop.call_soon_threadsafe(task.cancel)
