"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from llmpack.runtime.request import SequenceOutput, TokenLogprobs
from llmpack.server.bodies import CompletionBody
from llmpack.server.context import ServerContext, context_of, json_response
from llmpack.server.generation import ChoiceResult, Generation, build_generation, collect
from llmpack.server.logprob_format import (
    TextOffsets,
    TokenNames,
    completion_logprobs,
    echoed_logprobs,
    joined,
    prompt_logprobs,
)
from llmpack.server.parse import read_body
from llmpack.server.prompts import encode_prompts, split_prompts
from llmpack.server.responses import Completion, CompletionChoice, CompletionLogprobs, Usage
from llmpack.server.sampling import completion_params
from llmpack.server.streaming import EventStream, write_events
from llmpack.server.usage import StreamUsage


async def create_completion(request: Request) -> Response:
    """Continues one or more prompts."""
    context = context_of(request)
    body = await read_body(request, CompletionBody, context.options.max_body_bytes)
    context.check_open()
    params = completion_params(body, context.model.sampling_defaults)
    given = split_prompts(body.prompt, context.options.max_prompts)
    body.model = context.resolve_model(body.model)
    context.check_size(len(given) * params.n)
    prompts = await encode_prompts(given, body, context.model)
    generation = build_generation(body, prompts, params, context.model)
    stream = context.engine.submit(generation.requests)
    if body.stream:
        writer = CompletionWriter(body, generation, context)
        events = write_events(writer, stream, context.check_output)
        return EventStream(events, stream, context.options.comment_interval_s)
    results = await collect(generation, stream, request.receive, context.check_output)
    return json_response(msgspec.json.encode(_whole(body, generation, results, context)))


class CompletionFormat:
    """Writes one choice's tokens; remembers how far its text has come.

    Args:
        body: What was asked for.
        generation: The answer.
        context: For the tokenizer.
        index: The choice.
    """

    def __init__(self, body: CompletionBody, generation: Generation, context: ServerContext, index: int) -> None:
        self._body = body
        self._prompt = generation.prompt_of(index)
        self._names = TokenNames(context.model.tokenizer, as_ids=body.return_tokens_as_token_ids is True)
        self._text_len = 0
        self._offsets = TextOffsets(
            self._names, start=len(self._prompt.echo_text), skip_special=body.skip_special_tokens is not False
        )

    def echo_text(self) -> str:
        """What stands before the answer; once."""
        self._text_len += len(self._prompt.echo_text)
        return self._prompt.echo_text

    def echo_logprobs(self, entries: Sequence[TokenLogprobs | None] | None) -> CompletionLogprobs | None:
        """The prompt's log-probabilities, if echo and logprobs were asked for."""
        if entries is None or not self._body.echo or self._body.logprobs is None:
            return None
        prompt = self._prompt
        return echoed_logprobs(entries, prompt.ids, self._body.logprobs, self._names, len(prompt.echo_text))

    def logprobs(self, entries: Sequence[TokenLogprobs], text: str) -> CompletionLogprobs | None:
        """The log-probabilities of tokens whose text is `text`, if they were asked for."""
        self._text_len += len(text)
        if self._body.logprobs is None:
            return None
        return completion_logprobs(entries, self._body.logprobs, self._names, self._offsets, self._text_len)

    def whole(self, index: int, result: ChoiceResult) -> CompletionChoice:
        """The choice of an answer that is not streamed."""
        text = self.echo_text() + result.text
        echoed = self.echo_logprobs(result.prompt_logprobs)
        choice = CompletionChoice(
            index=index,
            text=text,
            logprobs=joined(echoed, self.logprobs(result.logprobs, result.text)),
            finish_reason=result.finish_reason,
            stop_reason=result.stop_reason,
        )
        if self._body.return_token_ids:
            choice.prompt_token_ids = list(self._prompt.ids)
            choice.token_ids = result.token_ids
        if self._body.prompt_logprobs is not None and result.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(result.prompt_logprobs, self._body.prompt_logprobs, self._names)
        return choice


def _whole(
    body: CompletionBody, generation: Generation, results: Sequence[ChoiceResult], context: ServerContext
) -> Completion:
    choices = [
        CompletionFormat(body, generation, context, index).whole(index, result) for index, result in enumerate(results)
    ]
    return _envelope(body, generation, choices, generation.usage(results))


def _envelope(
    body: CompletionBody,
    generation: Generation,
    choices: list[CompletionChoice],
    usage: Usage | UnsetType | None,
) -> Completion:
    return Completion(
        id=generation.id,
        object="text_completion",
        created=generation.created,
        model=generation.model_name,
        choices=choices,
        usage=usage,
        service_tier="default" if body.service_tier is not None else None,
    )


class CompletionWriter:
    """The chunks of a completions stream."""

    def __init__(self, body: CompletionBody, generation: Generation, context: ServerContext) -> None:
        self._body = body
        self._generation = generation
        self._index_of = generation.index_of()
        self._formats = [
            CompletionFormat(body, generation, context, index) for index in range(len(generation.requests))
        ]
        self._usage = StreamUsage(body.stream_options, generation)
        self._begun: set[int] = set()

    def opening(self) -> Iterator[Completion]:
        """Nothing: an echo goes out with the first output, which has its log-probabilities."""
        return iter(())

    def pieces(self, output: SequenceOutput) -> Iterator[Completion]:
        """The text, and after it the finish reason."""
        index = self._index_of[output.request_id]
        self._usage.note(index, output)
        text_choice = self._text_choice(index, output)
        if text_choice is not None:
            yield self._chunk(text_choice)
        if output.finish_reason is not None:
            yield self._chunk(
                CompletionChoice(index, "", None, output.finish_reason, stop_reason=output.stop_reason),
            )

    def closing(self) -> Iterator[Completion]:
        """The usage, if asked for."""
        usage = self._usage.final()
        if usage is not None:
            yield _envelope(self._body, self._generation, [], usage)

    def _text_choice(self, index: int, output: SequenceOutput) -> CompletionChoice | None:
        written = self._formats[index]
        is_first = index not in self._begun
        echo = written.echo_text() if is_first else ""
        logprobs = written.logprobs(output.logprobs, output.text)
        if is_first:
            self._begun.add(index)
            logprobs = joined(written.echo_logprobs(output.prompt_logprobs), logprobs)
        text = echo + output.text
        wants_ids = self._body.return_token_ids and (output.token_ids or is_first)
        if not text and not wants_ids and not (logprobs is not None and logprobs.tokens):
            return None
        choice = CompletionChoice(index, text, logprobs, None)
        if self._body.return_token_ids:
            choice.token_ids = list(output.token_ids)
            choice.prompt_token_ids = list(self._generation.prompt_of(index).ids) if is_first else None
        return choice

    def _chunk(self, choice: CompletionChoice) -> Completion:
        return _envelope(self._body, self._generation, [choice], self._usage.in_chunk())
