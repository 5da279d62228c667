"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from llmpack.runtime.request import SequenceOutput, TokenLogprobs
from llmpack.server.bodies import ChatBody
from llmpack.server.context import ServerContext, context_of, json_response
from llmpack.server.generation import ChoiceResult, Generation, build_generation, collect
from llmpack.server.logprob_format import TokenNames, chat_logprobs, prompt_logprobs
from llmpack.server.parse import read_body
from llmpack.server.prompts import encode_conversation, template_messages
from llmpack.server.responses import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    Delta,
    Usage,
)
from llmpack.server.sampling import chat_params
from llmpack.server.streaming import EventStream, write_events
from llmpack.server.usage import StreamUsage


async def create_chat_completion(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    body = await read_body(request, ChatBody, context.options.max_body_bytes)
    context.check_open()
    params = chat_params(body, context.model.sampling_defaults)
    messages = template_messages(body.messages)
    body.model = context.resolve_model(body.model)
    prompt = await encode_conversation(messages, body, context.model)
    generation = build_generation(body, [prompt], params, context.model)
    stream = context.engine.submit(generation.requests)
    if body.stream:
        events = write_events(ChatWriter(body, generation, context), stream, context.check_output)
        return EventStream(events, stream, context.options.comment_interval_s)
    results = await collect(generation, stream, request.receive, context.check_output)
    return json_response(msgspec.json.encode(_whole(body, generation, results, context)))


class ChatFormat:
    """Writes log-probabilities as the request asked for them."""

    def __init__(self, body: ChatBody, context: ServerContext) -> None:
        self._num_top = (body.top_logprobs or 0) if body.logprobs else None
        self.names = TokenNames(context.model.tokenizer, as_ids=body.return_tokens_as_token_ids is True)

    def logprobs(self, entries: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
        """None unless asked for."""
        return None if self._num_top is None else chat_logprobs(entries, self._num_top, self.names)


def _whole(
    body: ChatBody, generation: Generation, results: Sequence[ChoiceResult], context: ServerContext
) -> ChatCompletion:
    written = ChatFormat(body, context)
    prompt = generation.prompts[0]
    answer = ChatCompletion(
        id=generation.id,
        object="chat.completion",
        created=generation.created,
        model=generation.model_name,
        choices=[_choice(index, result, body, prompt.echo_text, written) for index, result in enumerate(results)],
        usage=generation.usage(results),
        service_tier="default" if body.service_tier is not None else None,
    )
    scored = results[0].prompt_logprobs
    if body.prompt_logprobs is not None and scored is not None:
        answer.prompt_logprobs = prompt_logprobs(scored, body.prompt_logprobs, written.names)
    if body.return_token_ids:
        answer.prompt_token_ids = list(prompt.ids)
    return answer


def _choice(index: int, result: ChoiceResult, body: ChatBody, echo_text: str, written: ChatFormat) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=ChatMessage(role="assistant", content=echo_text + result.text, refusal=None, annotations=[]),
        logprobs=written.logprobs(result.logprobs),
        finish_reason=str(result.finish_reason),
        stop_reason=result.stop_reason,
        token_ids=result.token_ids if body.return_token_ids else None,
    )


class ChatWriter:
    """The chunks of a chat stream: a role for each choice, then text, an empty delta with the finish reason, usage."""

    def __init__(self, body: ChatBody, generation: Generation, context: ServerContext) -> None:
        self._body = body
        self._generation = generation
        self._index_of = generation.index_of()
        self._format = ChatFormat(body, context)
        self._usage = StreamUsage(body.stream_options, generation)

    def opening(self) -> Iterator[ChatChunk]:
        """The role of every choice, and the echo."""
        prompt = self._generation.prompts[0]
        for index in range(len(self._generation.requests)):
            chunk = self._chunk(ChatChunkChoice(index, Delta(role="assistant", content=""), None, None))
            if self._body.return_token_ids and index == 0:
                chunk.prompt_token_ids = list(prompt.ids)
            yield chunk
            if prompt.echo_text:
                yield self._chunk(ChatChunkChoice(index, Delta(content=prompt.echo_text), None, None))

    def pieces(self, output: SequenceOutput) -> Iterator[ChatChunk]:
        """The text, and after it the finish reason."""
        index = self._index_of[output.request_id]
        self._usage.note(index, output)
        logprobs = self._format.logprobs(output.logprobs)
        with_ids = bool(self._body.return_token_ids and output.token_ids)
        if output.text or with_ids or (logprobs is not None and logprobs.content):
            token_ids = list(output.token_ids) if with_ids else None
            yield self._chunk(ChatChunkChoice(index, Delta(content=output.text), logprobs, None, token_ids=token_ids))
        if output.finish_reason is not None:
            yield self._chunk(
                ChatChunkChoice(index, Delta(), None, output.finish_reason, stop_reason=output.stop_reason)
            )

    def closing(self) -> Iterator[ChatChunk]:
        """The usage, if asked for."""
        usage = self._usage.final()
        if usage is not None:
            yield self._envelope([], usage)

    def _chunk(self, choice: ChatChunkChoice) -> ChatChunk:
        return self._envelope([choice], self._usage.in_chunk())

    def _envelope(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        return ChatChunk(
            id=self._generation.id,
            object="chat.completion.chunk",
            created=self._generation.created,
            model=self._generation.model_name,
            choices=choices,
            usage=usage,
            service_tier="default" if self._body.service_tier is not None else None,
        )
