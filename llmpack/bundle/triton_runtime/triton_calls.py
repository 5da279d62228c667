"""One thread that asks the server, and the responses of one request.

Everything that asks the server (responses, cancellation, metrics, log) goes through the one thread: two metric calls of
different threads at once were seen to reach each other's metric, in release 24.10.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llmpack.bundle.triton_runtime.failures import Cancelled, Failure, build_error, is_foreseen
from llmpack.bundle.triton_runtime.text_responses import OutputTensors

POLL_S = 0.1

_T = TypeVar("_T")


class TritonCalls:
    """Runs calls to the server, one after the other.

    Args:
        pb_utils: Triton's module.
    """

    def __init__(self, pb_utils: Any) -> None:
        self.pb_utils = pb_utils
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llmpack-send")

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """The result of a call, made after those that were asked for before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def submit(self, function: Callable[..., None], *arguments: Any) -> None:
        """Has a call made after those that were asked for before; its errors are lost."""
        self._thread.submit(function, *arguments)

    def close(self) -> None:
        """Waits for the last call."""
        self._thread.shutdown()


class Responses:
    """What goes back to the client of one request. After `fail`, or a `send` that is final, nothing may follow.

    Args:
        calls: Where the server is asked.
        sender: Triton's response sender.
    """

    def __init__(self, calls: TritonCalls, sender: Any) -> None:
        self._calls = calls
        self._sender = sender
        self._next_poll_s = 0.0

    async def send(self, tensors: OutputTensors, *, is_final: bool) -> None:
        """Sends one response."""
        await self._calls.call(self._send, tensors, is_final)

    async def fail(self, failure: Failure) -> None:
        """Sends an error as the last response."""
        await self._calls.call(self._fail, failure)

    def fail_soon(self, failure: Failure) -> None:
        """As `fail`, from a thread without an event loop."""
        self._calls.submit(self._fail, failure)

    async def check_cancelled(self) -> None:
        """Returns while the client is there; the server is asked at most every `POLL_S` seconds.

        Raises:
            Cancelled: The client is gone.
        """
        now_s = time.monotonic()
        if now_s < self._next_poll_s:
            return
        self._next_poll_s = now_s + POLL_S
        if await self._calls.call(self._sender.is_cancelled):
            raise Cancelled

    def _send(self, tensors: OutputTensors, is_final: bool) -> None:
        pb_utils = self._calls.pb_utils
        outputs = [pb_utils.Tensor(name, values) for name, values in tensors.items()]
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_final else 0
        self._sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=flags)

    def _fail(self, failure: Failure) -> None:
        pb_utils = self._calls.pb_utils
        response = pb_utils.InferenceResponse(output_tensors=[], error=build_error(pb_utils, failure))
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def log_failure(pb_utils: Any, error: BaseException) -> None:
    """Writes to the server's log what its operator should know of a request's error."""
    if isinstance(error, Cancelled):
        pb_utils.Logger.log_info("[llmpack] cancelled a request")
    elif not is_foreseen(error):
        pb_utils.Logger.log_error("[llmpack] " + "".join(traceback.format_exception(error)))
