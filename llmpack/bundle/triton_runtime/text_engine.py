"""The engine of the target `triton` as a service of one event loop: a request goes in, its responses come out."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llmpack.bundle.triton_runtime.loading import LoadedModel
from llmpack.bundle.triton_runtime.metrics import RequestFigures, Sharing, TritonMetrics
from llmpack.bundle.triton_runtime.prompts import resolve_prompt
from llmpack.bundle.triton_runtime.text_request import TextRequest, parse_text_request
from llmpack.bundle.triton_runtime.text_responses import OutputTensors, TextResponses
from llmpack.bundle.triton_runtime.triton_calls import POLL_S, TritonCalls
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.stream import Stream

_WATCH_S = 0.25


class Client(Protocol):
    """Where responses go."""

    async def send(self, tensors: OutputTensors, *, is_final: bool) -> None:
        """Sends one response."""

    async def check_cancelled(self) -> None:
        """Raises Cancelled when the client is gone."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it travels between processes.

    Attributes:
        tensors: The inputs.
        parameters: The request's own parameters, JSON.
    """

    tensors: Mapping[str, Any]
    parameters: str


class TextEngine:
    """Generates for any number of requests at once; they share the engine's batch.

    Args:
        model: Loaded, its engine not started.
        calls: Where metrics are reported.
        metrics: What is reported; None for nothing.
        read_sharing: Who uses the engine now.
    """

    def __init__(
        self,
        model: LoadedModel,
        calls: TritonCalls,
        metrics: TritonMetrics | None,
        read_sharing: Callable[[], Sharing],
    ) -> None:
        self._model = model
        self._calls = calls
        self._metrics = metrics
        self._read_sharing = read_sharing
        self._engine = AsyncEngine(model.engine)
        self._engine.start()
        self._ids = itertools.count()

    async def generate(self, ask: Ask, client: Client) -> None:
        """Sends all responses of a request.

        Raises:
            Cancelled: The client is gone; its slots are free.
            RequestError: The request cannot be served.
            EngineError: The engine ended.
        """
        figures = await self._generate(ask, client)
        await self._calls.call(self._report, figures)

    async def watch_load(self) -> None:
        """Keeps the gauges true until it is cancelled, also while requests end that nobody waits for."""
        while True:
            await asyncio.sleep(_WATCH_S)
            await self._calls.call(self._report, None)

    def close(self, drain_s: float) -> None:
        """Gives live requests `drain_s` seconds, ends the rest; not to be called from the event loop."""
        self._engine.shutdown(drain_s)

    async def _generate(self, ask: Ask, client: Client) -> RequestFigures:
        arrived_s = time.monotonic()
        model = self._model
        request = parse_text_request(ask.tensors, ask.parameters, model.settings.max_tokens)
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
            first_token_s = await _send_all(client, request, stream, responses)
        return RequestFigures(
            num_choices=len(sequences),
            num_prompt_tokens=len(sequences[0].prompt_ids),
            num_output_tokens=responses.num_output_tokens,
            first_token_s=None if first_token_s is None else first_token_s - arrived_s,
            total_s=time.monotonic() - arrived_s,
        )

    def _report(self, figures: RequestFigures | None) -> None:
        """Updates the metrics; the requests do not suffer when the server refuses that."""
        if self._metrics is None:
            return
        try:
            self._metrics.set_load(self._engine.metrics, self._read_sharing())
            if figures is not None:
                self._metrics.observe(figures)
        except Exception as error:
            self._calls.pb_utils.Logger.log_error(f"[llmpack] a metric could not be reported: {error}")


def build_metrics(pb_utils: Any, model: LoadedModel) -> TritonMetrics | None:
    """The metrics of a model whose config wants them."""
    settings = model.settings
    if not settings.report_metrics:
        return None
    labels = {"model": settings.model_name, "version": settings.model_version}
    return TritonMetrics(pb_utils, labels, model.limits.max_seq_len)


async def _send_all(client: Client, request: TextRequest, stream: Stream, responses: TextResponses) -> float | None:
    """Sends all responses; returns when the first token came."""
    first_token_s = None
    while not responses.is_finished:
        await client.check_cancelled()
        if not await stream.ready_within(POLL_S):
            continue
        await _drain(stream, responses)
        if first_token_s is None and responses.num_output_tokens:
            first_token_s = time.monotonic()
        if responses.is_finished or (request.is_streamed and responses.has_news):
            await client.send(responses.take(), is_final=responses.is_finished)
    return first_token_s


async def _drain(stream: Stream, responses: TextResponses) -> None:
    """Adds all that has arrived: what one step gave to several choices goes into one response."""
    while not responses.is_finished and await stream.ready_within(0.0):
        responses.add(await anext(stream))
