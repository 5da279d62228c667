"""One accepted request on its way through the engine: its sequences, and what came of them."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.types import Receive

from llmpack.errors import RequestError
from llmpack.runtime.request import FinishReason, GenerationRequest, SequenceOutput, TokenLogprobs
from llmpack.runtime.resolve import resolve_requests
from llmpack.runtime.sampling_params import SamplingParams
from llmpack.runtime.stream import Stream
from llmpack.server.bodies import ChatBody, CompletionBody
from llmpack.server.errors import ClientGone
from llmpack.server.parse import field_name
from llmpack.server.prompts import Prompt
from llmpack.server.responses import PromptTokensDetails, Usage
from llmpack.server.served_model import ServedModel

_REQUEST_ID = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What all chunks and choices of one answer share. Choice prompt_i * n + j is the j-th of the i-th prompt.

    Attributes:
        id: The answer's id.
        created: Unix time in seconds.
        model_name: As the request spelt it.
        prompts: In order.
        num_choices: Choices for each prompt, n.
        requests: One for each choice, in order of their index.
    """

    id: str
    created: int
    model_name: str
    prompts: tuple[Prompt, ...]
    num_choices: int
    requests: tuple[GenerationRequest, ...]

    def index_of(self) -> dict[str, int]:
        """Request id -> index of its choice."""
        return {request.request_id: index for index, request in enumerate(self.requests)}

    def prompt_of(self, index: int) -> Prompt:
        """The prompt that choice `index` continues."""
        return self.prompts[index // self.num_choices]

    def usage(self, results: Sequence[ChoiceResult]) -> Usage:
        """The tokens so far."""
        num_prompt = sum(len(prompt.ids) for prompt in self.prompts)
        num_output = sum(result.num_output_tokens for result in results)
        num_cached = sum(result.num_cached_tokens for result in results[:: self.num_choices])
        return Usage(num_prompt, num_output, num_prompt + num_output, PromptTokensDetails(num_cached))


@dataclass
class ChoiceResult:
    """One sequence's outputs, added up."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0

    def add(self, output: SequenceOutput) -> None:
        """Adds what one step brought."""
        self.text += output.text
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs
        self.count(output)
        if output.prompt_logprobs is not None:
            self.prompt_logprobs = output.prompt_logprobs
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            self.stop_reason = output.stop_reason

    def count(self, output: SequenceOutput) -> None:
        """Takes over the token counts alone."""
        self.num_output_tokens = output.num_output_tokens
        self.num_cached_tokens += output.num_cached_tokens


def answer_id(prefix: str, request_id: str | None) -> str:
    """A new id, or one that ends in what the request asked for.

    Raises:
        RequestError: An id that is not printable ASCII of at most 256 characters.
    """
    if request_id is None:
        return f"{prefix}-{uuid.uuid4().hex}"
    if not _REQUEST_ID.fullmatch(request_id):
        allowed = "1 to 256 printable ASCII characters without spaces"
        raise RequestError("not a request id", param="request_id", given=request_id, allowed=allowed)
    return f"{prefix}-{request_id}"


def build_generation(
    body: CompletionBody | ChatBody, prompts: Sequence[Prompt], params: SamplingParams, model: ServedModel
) -> Generation:
    """Decides every value of every sequence.

    Raises:
        RequestError: Ids outside the vocabulary, or lengths outside the context.
    """
    response_id = answer_id("cmpl" if isinstance(body, CompletionBody) else "chatcmpl", body.request_id)
    requests: list[GenerationRequest] = []
    for index, prompt in enumerate(prompts):
        request_id = response_id if len(prompts) == 1 else f"{response_id}-p{index}"
        requests += _resolve(body, prompt, params, request_id, model)
    return Generation(
        id=response_id,
        created=int(time.time()),
        model_name=body.model or model.names[0],
        prompts=tuple(prompts),
        num_choices=params.n,
        requests=tuple(requests),
    )


def _resolve(
    body: CompletionBody | ChatBody, prompt: Prompt, params: SamplingParams, request_id: str, model: ServedModel
) -> list[GenerationRequest]:
    try:
        return resolve_requests(
            params, prompt.ids, request_id=request_id, tokenizer=model.tokenizer, limits=model.limits
        )
    except RequestError as error:
        error.param = field_name(body, error.param) if error.param else None
        raise


async def collect(
    generation: Generation, stream: Stream, receive: Receive, check_output: Callable[[SequenceOutput], None]
) -> list[ChoiceResult]:
    """Waits for all choices; frees their slots when the client leaves.

    Args:
        generation: What was submitted.
        stream: Its outputs.
        receive: ASGI's, after the body was read.
        check_output: Raises for a sequence that the server aborted.

    Raises:
        ClientGone: The client left.
    """
    results = [ChoiceResult() for _ in generation.requests]
    index_of = generation.index_of()
    watcher = asyncio.create_task(_abort_on_disconnect(stream, receive))
    try:
        async for output in stream:
            if output.finish_reason == "abort" and watcher.done():
                raise ClientGone
            check_output(output)
            results[index_of[output.request_id]].add(output)
    finally:
        watcher.cancel()
        await stream.aclose()
    return results


async def _abort_on_disconnect(stream: Stream, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.abort()
