"""The outputs of a group of requests, handed from the engine's thread to one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from llmpack.errors import EngineError
from llmpack.runtime.request import SequenceOutput


def merge_outputs(outputs: Sequence[SequenceOutput]) -> SequenceOutput:
    """One output that says what these outputs of one sequence, in order, say together."""
    last = outputs[-1]
    if len(outputs) == 1:
        return last
    return SequenceOutput(
        request_id=last.request_id,
        text="".join(output.text for output in outputs),
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        logprobs=tuple(entry for output in outputs for entry in output.logprobs),
        prompt_logprobs=outputs[0].prompt_logprobs,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        num_output_tokens=last.num_output_tokens,
        num_cached_tokens=sum(output.num_cached_tokens for output in outputs),
        error=last.error,
        error_param=last.error_param,
    )


class Stream:
    """Async iterator over the outputs of all requests of one `submit`; ends when all of them are finished.

    A reader that is slower than the engine gets the outputs of each sequence merged into one, so never more than one
    output per sequence is waiting for it and the engine never waits. Concatenation is unaffected.

    Leaving early must be told: use `async with`, or call `aclose()`. Cancelling a task that waits in the iterator
    aborts the requests too. So do not put a time limit on the iterator itself (`wait_for` cancels); `ready_within` is
    for that. One task reads at a time.

    Args:
        request_ids: The requests of the group.
        loop: The event loop of the reader.
        abort: Called with the stream, from any thread, to end its unfinished requests.

    Attributes:
        request_ids: The requests of the group.
        loop: The event loop of the reader.
    """

    def __init__(
        self, request_ids: tuple[str, ...], loop: asyncio.AbstractEventLoop, abort: Callable[[Stream], None]
    ) -> None:
        self.request_ids = request_ids
        self.loop = loop
        self._open_ids = set(request_ids)
        self._abort = abort
        self._arrived: deque[SequenceOutput] = deque()  # appended by the engine's thread, emptied by the reader
        self._error: EngineError | None = None
        self._event = asyncio.Event()
        self._is_closed = False

    def __aiter__(self) -> Stream:
        """The stream itself."""
        return self

    async def __anext__(self) -> SequenceOutput:
        """What was added to one sequence since it was last returned.

        Raises:
            EngineError: The engine stopped before the sequences were finished.
        """
        while (output := self._take()) is None:
            await self._wait()
        return output

    async def ready_within(self, timeout_s: float) -> bool:
        """Whether the iterator would go on without waiting, at the latest after `timeout_s` seconds.

        The requests go on either way, so a server can send signs of life while they are queued.
        """
        deadline_s = self.loop.time() + timeout_s
        while not self._has_news:
            remaining_s = deadline_s - self.loop.time()
            if remaining_s <= 0:
                return False
            with suppress(TimeoutError):
                await self._wait(remaining_s)
        return True

    def abort(self) -> None:
        """Ends the unfinished requests. Their slots are free before the next step; idempotent, from any thread.

        The iterator still returns what was generated, and each request's last output with finish_reason "abort".
        """
        self._abort(self)

    async def aclose(self) -> None:
        """Aborts what is unfinished and ends the iterator at once."""
        self._is_closed = True
        self.abort()
        self._event.set()

    async def __aenter__(self) -> Stream:
        """The stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the stream."""
        await self.aclose()

    def put(self, output: SequenceOutput) -> None:
        """Adds an output; called by the engine's thread, which then has `wake` run in `loop`."""
        self._arrived.append(output)

    def fail(self, error: EngineError) -> None:
        """Makes the iterator raise after the outputs that arrived; called by the engine's thread before `wake`."""
        self._error = error

    def wake(self) -> None:
        """Lets the reader look for outputs; runs in `loop`."""
        self._event.set()

    @property
    def _has_news(self) -> bool:
        return bool(self._arrived or self._is_closed or self._error or not self._open_ids)

    async def _wait(self, timeout_s: float | None = None) -> None:
        self._event.clear()  # nothing is lost: what arrives from now on wakes later, in this same loop
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except asyncio.CancelledError:
            self.abort()
            raise

    def _take(self) -> SequenceOutput | None:
        """All that arrived for the sequence that has waited longest, or None when nothing did."""
        if self._is_closed:
            raise StopAsyncIteration
        if self._arrived:
            return self._take_first()
        if not self._open_ids:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        return None

    def _take_first(self) -> SequenceOutput:
        arrived = [self._arrived.popleft() for _ in range(len(self._arrived))]
        request_id = arrived[0].request_id
        self._arrived.extendleft(output for output in reversed(arrived) if output.request_id != request_id)
        merged = merge_outputs([output for output in arrived if output.request_id == request_id])
        if merged.finish_reason is not None:
            self._open_ids.discard(request_id)
        return merged
