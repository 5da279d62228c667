"""Target `triton`: streamed text generation by the contract of Triton's vLLM backend, over one engine.

    Triton's thread     execute() --- reads tensors ---.
    loop thread                                        `-> one coroutine per request <--- the engine's streams
    sender thread       <--- responses, cancellation -----'

`execute` returns at once, so all requests that Triton has share the engine's batch, also those that it gives to other
instances of the model.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmpack.bundle.triton_runtime.engine_access import EngineAccess
from llmpack.bundle.triton_runtime.failures import describe_failure
from llmpack.bundle.triton_runtime.instance_group import InstanceGroup
from llmpack.bundle.triton_runtime.loading import LoadedModel, load_model
from llmpack.bundle.triton_runtime.text_engine import Ask
from llmpack.bundle.triton_runtime.text_request import read_tensors
from llmpack.bundle.triton_runtime.triton_calls import Responses, TritonCalls, log_failure

_DRAIN_S = 5.0


class TextGeneration:
    """One instance: serves decoupled requests until `close`.

    Args:
        pb_utils: Triton's module.
        load: Loads the model, unless another instance of the group has done so.
        group: The instances that share one engine; None when there is one alone.
    """

    def __init__(self, pb_utils: Any, load: Callable[[], LoadedModel], group: InstanceGroup | None = None) -> None:
        self._pb_utils = pb_utils
        self._calls = TritonCalls(pb_utils)
        self._access = EngineAccess(load, self._calls, group)
        self._jobs: set[asyncio.Task[None]] = set()  # the loop itself only holds weak references
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="llmpack-triton", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._access.find(), self._loop).result()
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, pb_utils: Any, args: Mapping[str, str]) -> TextGeneration:
        """The model of Triton's `initialize` arguments.

        Raises:
            pb_utils.TritonModelException: The artifact or the config cannot be used.
        """
        group = InstanceGroup.read(args, Path(pb_utils.get_model_dir()))
        return cls(pb_utils, lambda: load_model(pb_utils, args), group if group.size > 1 else None)

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes Triton's requests; their responses follow through their senders."""
        for request in requests:
            responses = Responses(self._calls, request.get_response_sender())
            try:
                ask = Ask(read_tensors(request), request.parameters())
            except Exception as error:  # a tensor that cannot be read must not end the others
                responses.fail_soon(describe_failure(error))
            else:
                self._loop.call_soon_threadsafe(self._begin, ask, responses)

    def close(self) -> None:
        """Gives live requests a moment, ends the rest and all threads; does nothing the second time."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._calls.close()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _finish(self) -> None:
        await self._access.drain(_DRAIN_S)
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=_DRAIN_S)
        await self._access.close()

    def _begin(self, ask: Ask, responses: Responses) -> None:
        task = self._loop.create_task(self._answer(ask, responses))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _answer(self, ask: Ask, responses: Responses) -> None:
        try:
            engine = await self._access.find()
            await engine.generate(ask, responses)
        except Exception as error:  # whatever it is, the client must get a last response
            await self._calls.call(log_failure, self._pb_utils, error)
            await responses.fail(describe_failure(error))
