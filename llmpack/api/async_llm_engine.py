"""vLLM's `AsyncLLMEngine` over llmpack's engine."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count
from typing import Self

from llmpack.api.collector import OutputCollector
from llmpack.api.engine_args import AsyncEngineArgs
from llmpack.api.live_requests import LiveRequest, LiveRequests
from llmpack.api.outputs import RequestId, RequestOutput
from llmpack.api.prompts import EncodedPrompt, Prompt, encode_prompt
from llmpack.api.startup import start_engine
from llmpack.api.tokenizer import EngineTokenizer
from llmpack.errors import EngineError, RequestError, UsageError
from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.request import GenerationRequest, SequenceOutput
from llmpack.runtime.resolve import resolve_requests
from llmpack.runtime.sampling_params import SamplingParams
from llmpack.runtime.stream import Stream
from llmpack.server.served_model import ServedModel


class AsyncLLMEngine:
    """Generates for any number of callers at once, in one event loop after another or in several together.

    The engine runs in a thread of its own from the start; `shutdown`, the end of the process, or the last reference
    to it ends it. Requests beyond the slots wait in a queue without a bound.

    Args:
        engine: Started.
        model: What it serves.
        seed: Of the generator of seeds for requests that have none; None for arbitrary seeds.

    Attributes:
        model: What it serves.
        tokenizer: What `get_tokenizer` gives.
    """

    def __init__(self, engine: AsyncEngine, model: ServedModel, *, seed: int | None = None) -> None:
        self.model = model
        self._engine = engine
        self._live = LiveRequests()
        self.tokenizer = EngineTokenizer(model.tokenizer, model.chat_template)
        self._numbers = count()
        self._seeds = None if seed is None else random.Random(seed)
        weakref.finalize(self, _stop_unobserved, engine).atexit = False  # the engine itself stops at exit

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> Self:
        """Loads the artifact and starts the engine.

        Raises:
            ArtifactError: There is no artifact, its files are not those that were compiled, or it cannot run here.
            ValidationFailed: Arguments disagree with the artifact; all findings are named.
        """
        started = start_engine(engine_args)
        return cls(started.engine, started.model, seed=engine_args.seed)

    @property
    def is_running(self) -> bool:
        """Whether requests are taken."""
        return self._engine.is_running

    @property
    def errored(self) -> bool:
        """Whether the engine died."""
        return self._engine.errored is not None

    @property
    def dead_error(self) -> BaseException | None:
        """What it died of."""
        return self._engine.errored

    async def check_health(self) -> None:
        """Returns if the engine serves.

        Raises:
            EngineError: It is shut down or died.
        """
        self._engine.check_health()

    async def get_tokenizer(self) -> EngineTokenizer:
        """The model's tokenizer."""
        return self.tokenizer

    def shutdown(self, drain_timeout_s: float = 0.0) -> None:
        """Takes no more requests, gives the live ones `drain_timeout_s` seconds and aborts the rest; idempotent.

        Blocks until the engine's thread has ended: to drain from an event loop, call it with `asyncio.to_thread`.
        """
        self._engine.shutdown(drain_timeout_s)

    async def abort(self, request_id: RequestId) -> None:
        """Ends a request: its generator yields what there is, with finish_reason "abort". Unknown ids are ignored."""
        self._live.abort(request_id)

    async def generate(
        self, prompt: Prompt, sampling_params: SamplingParams, request_id: RequestId
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields outputs until the last one, whose `finished` is true.

        Leaving the loop early, `aclose()` and cancelling the task abort the request. A caller that is slower than the
        engine gets fewer and larger outputs. Errors are raised when the first output is asked for.

        Args:
            prompt: Text, token ids, {"prompt": text} or {"prompt_token_ids": ids}.
            sampling_params: How to generate; `output_kind` says what each output carries.
            request_id: Of no other live request; the outputs have it as it is.

        Raises:
            DuplicateRequest: The id is live.
            RequestError: The prompt or the parameters cannot be used, or they allow no token.
            EngineError: The engine does not run, or the model's logits are no numbers.
        """
        live = self._live.claim(request_id)
        try:
            encoded = await encode_prompt(prompt, self.model.tokenizer)
            requests = self._resolve(encoded, sampling_params, live)
            collector = OutputCollector(
                request_id, encoded, requests, kind=sampling_params.output_kind, tokenizer=self.model.tokenizer
            )
            async with self._submit(requests, live) as stream:
                async for output in stream:
                    _check(output)
                    news = collector.add(output)
                    if news is not None and news.finished:
                        self._live.release(live)  # before the caller can know, so that it may use the id again
                    if news is not None:
                        yield news
        finally:
            self._live.release(live)

    def _resolve(self, prompt: EncodedPrompt, params: SamplingParams, live: LiveRequest) -> list[GenerationRequest]:
        if not isinstance(params, SamplingParams):
            raise UsageError("not sampling parameters", where="sampling_params", given=params, allowed="SamplingParams")
        if self._seeds is not None and params.seed in (None, -1):
            params = replace(params, seed=self._seeds.getrandbits(63))
        # The engine names choices by suffixes: the number keeps "a" with n=2 and "a-1" apart.
        name = f"{live.request_id}#{next(self._numbers)}"
        return resolve_requests(
            params, prompt.ids, request_id=name, tokenizer=self.model.tokenizer, limits=self.model.limits
        )

    def _submit(self, requests: list[GenerationRequest], live: LiveRequest) -> Stream:
        stream = self._engine.submit(requests)
        live.attach(stream)
        return stream


def _check(output: SequenceOutput) -> None:
    if output.error is None:
        return
    if output.error_param is not None:
        raise RequestError(output.error, param=output.error_param)
    raise EngineError(output.error)


def _stop_unobserved(engine: AsyncEngine) -> None:
    """Stops an engine that nobody holds any more, from whichever thread the collector runs in, its own included."""
    threading.Thread(target=engine.shutdown, daemon=True).start()
