"""Target `triton`: streamed text generation by the contract of Triton's vLLM backend, over one engine.

    Triton's thread     execute() --- reads tensors ---.
    loop thread                                        `-> one coroutine per request <--- AsyncEngine's streams
    sender thread       <--- responses, cancellation -----'

`execute` returns at once, so all requests that Triton has share the engine's batch. Everything that asks the server
(responses, cancellation, metrics) goes through the one sender thread: two metric calls of different threads at once
were seen to reach each other's metric, in release 24.10.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from llmpack.bundle.triton_runtime.failures import Cancelled, build_error, is_foreseen
from llmpack.bundle.triton_runtime.loading import LoadedModel, load_model
from llmpack.bundle.triton_runtime.metrics import RequestFigures, TritonMetrics
from llmpack.bundle.triton_runtime.prompts import resolve_prompt
from llmpack.bundle.triton_runtime.text_request import TextRequest, parse_text_request, read_tensors
from llmpack.bundle.triton_runtime.text_responses import OutputTensors, TextResponses
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.stream import Stream

_POLL_S = 0.1
_WATCH_S = 0.25
_DRAIN_S = 5.0

_T = TypeVar("_T")


@dataclass(slots=True)
class _Job:
    """A request on its way.

    Attributes:
        sender: Triton's response sender.
        tensors: The inputs.
        parameters: The request's own parameters, JSON.
        next_poll_s: When to ask next whether the client is still there, on the loop's clock.
    """

    sender: Any
    tensors: Mapping[str, Any]
    parameters: str
    next_poll_s: float = 0.0


class TextGeneration:
    """Serves decoupled requests until `close`.

    Args:
        pb_utils: Triton's module.
        model: Loaded, its engine not started.
    """

    def __init__(self, pb_utils: Any, model: LoadedModel) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self._engine = AsyncEngine(model.engine)
        self._engine.start()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="llmpack-send")
        self._metrics = self._build_metrics()
        self._ids = itertools.count()
        self._jobs: set[asyncio.Task[None]] = set()  # the loop itself only holds weak references
        self._loop = asyncio.new_event_loop()
        self._watch = self._loop.create_task(self._watch_load())
        self._thread = threading.Thread(target=self._run_loop, name="llmpack-triton", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, pb_utils: Any, args: Mapping[str, str]) -> TextGeneration:
        """The model of Triton's `initialize` arguments.

        Raises:
            pb_utils.TritonModelException: The artifact or the config cannot be used.
        """
        _check_one_instance(pb_utils, args)
        return cls(pb_utils, load_model(pb_utils, args))

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes Triton's requests; their responses follow through their senders."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                job = _Job(sender, read_tensors(request), request.parameters())
            except Exception as error:  # a tensor that cannot be read must not end the others
                self._sender.submit(self._send_error, sender, error)
            else:
                self._loop.call_soon_threadsafe(self._begin, job)

    def close(self) -> None:
        """Gives live requests a moment, ends the rest and all threads; does nothing the second time."""
        if self._loop.is_closed():
            return
        self._engine.shutdown(_DRAIN_S)
        asyncio.run_coroutine_threadsafe(self._finish_jobs(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._sender.shutdown()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _watch_load(self) -> None:
        """Keeps the gauges true, also while requests end that nobody waits for."""
        while True:
            await asyncio.sleep(_WATCH_S)
            await self._in_sender(self._report, None)

    async def _finish_jobs(self) -> None:
        self._watch.cancel()
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=_DRAIN_S)

    def _begin(self, job: _Job) -> None:
        task = self._loop.create_task(self._answer(job))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _answer(self, job: _Job) -> None:
        try:
            figures = await self._generate(job)
        except Exception as error:  # whatever it is, the client must get a last response
            await self._in_sender(self._send_error, job.sender, error)
        else:
            await self._in_sender(self._report, figures)

    async def _generate(self, job: _Job) -> RequestFigures:
        arrived_s = time.monotonic()
        model = self._model
        request = parse_text_request(job.tensors, job.parameters, model.settings.max_tokens)
        sequences = await asyncio.to_thread(
            resolve_prompt, request.prompt, request.params, f"triton-{next(self._ids)}",
            model.engine.tokenizer, model.limits,
        )  # fmt: skip
        responses = TextResponses(
            request,
            [sequence.request_id for sequence in sequences],
            num_input_tokens=len(sequences[0].prompt_ids),
            tokenizer=model.engine.tokenizer,
            stream_text=model.settings.stream_text,
        )
        async with self._engine.submit(sequences) as stream:
            first_token_s = await self._stream(job, request, stream, responses)
        return RequestFigures(
            num_choices=len(sequences),
            num_prompt_tokens=len(sequences[0].prompt_ids),
            num_output_tokens=responses.num_output_tokens,
            first_token_s=None if first_token_s is None else first_token_s - arrived_s,
            total_s=time.monotonic() - arrived_s,
        )

    async def _stream(self, job: _Job, request: TextRequest, stream: Stream, responses: TextResponses) -> float | None:
        """Sends all responses; returns when the first token came."""
        first_token_s = None
        while not responses.is_finished:
            await self._check_cancelled(job)
            if not await stream.ready_within(_POLL_S):
                continue
            await _drain(stream, responses)
            if first_token_s is None and responses.num_output_tokens:
                first_token_s = time.monotonic()
            if responses.is_finished or (request.is_streamed and responses.has_news):
                await self._in_sender(self._send, job.sender, responses.take(), responses.is_finished)
        return first_token_s

    async def _check_cancelled(self, job: _Job) -> None:
        now_s = self._loop.time()
        if now_s < job.next_poll_s:
            return
        job.next_poll_s = now_s + _POLL_S
        if await self._in_sender(job.sender.is_cancelled):
            raise Cancelled

    async def _in_sender(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Runs a call that asks the server, after those that were asked for before."""
        return await self._loop.run_in_executor(self._sender, call, *arguments)

    def _send(self, sender: Any, tensors: OutputTensors, is_final: bool) -> None:
        pb_utils = self._pb_utils
        outputs = [pb_utils.Tensor(name, values) for name, values in tensors.items()]
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_final else 0
        sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=flags)

    def _send_error(self, sender: Any, error: Exception) -> None:
        pb_utils = self._pb_utils
        if isinstance(error, Cancelled):
            pb_utils.Logger.log_info("[llmpack] cancelled a request")
        elif not is_foreseen(error):
            pb_utils.Logger.log_error("[llmpack] " + "".join(traceback.format_exception(error)))
        response = pb_utils.InferenceResponse(output_tensors=[], error=build_error(pb_utils, error))
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _report(self, figures: RequestFigures | None) -> None:
        """Updates the metrics; the requests do not suffer when the server refuses that."""
        if self._metrics is None:
            return
        try:
            self._metrics.set_load(self._engine.metrics)
            if figures is not None:
                self._metrics.observe(figures)
        except Exception as error:
            self._pb_utils.Logger.log_error(f"[llmpack] a metric could not be reported: {error}")

    def _build_metrics(self) -> TritonMetrics | None:
        settings = self._model.settings
        if not settings.report_metrics:
            return None
        labels = {"model": settings.model_name, "version": settings.model_version}
        return TritonMetrics(self._pb_utils, labels, self._model.limits.max_seq_len)


def _check_one_instance(pb_utils: Any, args: Mapping[str, str]) -> None:
    """Another instance is another process with another engine, and neither would see the other's requests."""
    groups = json.loads(args["model_config"]).get("instance_group", [])
    count = sum(int(group["count"]) for group in groups)
    if count > 1:
        raise pb_utils.TritonModelException(
            f"one engine batches all requests, so instance_group must count 1 in config.pbtxt; given: {count}"
        )


async def _drain(stream: Stream, responses: TextResponses) -> None:
    """Adds all that has arrived: what one step gave to several choices goes into one response."""
    while not responses.is_finished and await stream.ready_within(0.0):
        responses.add(await anext(stream))
