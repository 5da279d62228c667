"""vLLM's `LLM`: the same engine for callers that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from llmpack.api.async_llm_engine import AsyncLLMEngine
from llmpack.api.blocking import run_blocking
from llmpack.api.engine_args import AsyncEngineArgs, StrPath
from llmpack.api.outputs import RequestOutput
from llmpack.api.prompts import Prompt, TokensPrompt, is_token_list
from llmpack.api.tokenizer import EngineTokenizer
from llmpack.errors import RequestError, UsageError
from llmpack.runtime.sampling_params import RequestOutputKind, SamplingParams

Message: TypeAlias = Mapping[str, Any]


class LLM:
    """Generates for lists of prompts; all of them run at once, as far as there are slots.

    May be used from several threads, below a running event loop, and in a `with` block, which stops the engine.

    Args:
        model: The artifact's directory.
        settings: As `AsyncEngineArgs` has them.

    Raises:
        UsageError: A setting is unknown; the nearest is named.
        ArtifactError: There is no artifact, its files are not those that were compiled, or it cannot run here.
        ValidationFailed: Settings disagree with the artifact; all findings are named.
    """

    def __init__(self, model: StrPath, **settings: Any) -> None:
        self._take(AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model, **settings)))

    @classmethod
    def from_engine(cls, engine: AsyncLLMEngine) -> Self:
        """Shares an engine that is loaded already."""
        llm = cls.__new__(cls)
        llm._take(engine)
        return llm

    def _take(self, engine: AsyncLLMEngine) -> None:
        self.engine = engine
        self._numbers = count()

    def get_tokenizer(self) -> EngineTokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What generation_config.json recommends; vLLM's defaults for the rest."""
        defaults: dict[str, Any] = dict(self.engine.model.sampling_defaults)
        return SamplingParams(**defaults)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """The finished outputs, in the order of the prompts. The first error ends all of the call.

        Args:
            prompts: One prompt or several; a list of ints is one.
            sampling_params: For all prompts, or one for each; None for the model's defaults.
            use_tqdm: Must be false: a library draws no progress bar.

        Raises:
            UsageError: There are not as many parameters as prompts, or a progress bar is asked for.
            RequestError: A prompt or its parameters cannot be used; a note tells which.
            EngineError: The engine does not run.
        """
        if use_tqdm:
            raise UsageError("no progress bar is drawn", where="use_tqdm", given=use_tqdm, allowed="False")
        listed = _list_prompts(prompts)
        return run_blocking(self._generate_all(listed, self._list_params(sampling_params, len(listed))))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        **template: Any,
    ) -> list[RequestOutput]:
        """The finished answers, in the order of the conversations.

        Args:
            messages: One conversation in OpenAI's form, or several.
            sampling_params: As for `generate`.
            use_tqdm: Must be false.
            template: `add_generation_prompt` (true unless given), `continue_final_message`, and further variables of
                the model's template.

        Raises:
            UsageError: As for `generate`.
            RequestError: As for `generate`; also when there is no template, or it failed.
            EngineError: The engine does not run.
        """
        conversations = _list_conversations(messages)
        prompts = [self._render(conversation, template) for conversation in conversations]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def shutdown(self) -> None:
        """Stops the engine."""
        self.engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def _render(self, conversation: Sequence[Message], template: Mapping[str, Any]) -> TokensPrompt:
        tokenizer = self.get_tokenizer()
        continues = template.get("continue_final_message", False)
        options = {"add_generation_prompt": not continues, **template, "tokenize": False}
        text = str(tokenizer.apply_chat_template(conversation, **options))
        return {"prompt": text, "prompt_token_ids": tokenizer.encode(text, add_special_tokens=False)}

    def _list_params(
        self, given: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
    ) -> list[SamplingParams]:
        if given is None:
            return [self.get_default_sampling_params()] * num_prompts
        if isinstance(given, SamplingParams):
            return [given] * num_prompts
        if len(given) != num_prompts:
            raise UsageError(
                "as many sampling parameters as prompts are needed",
                where="sampling_params",
                given=len(given),
                allowed=f"one for all, or {num_prompts}",
            )
        return list(given)

    async def _generate_all(self, prompts: list[Prompt], params: list[SamplingParams]) -> list[RequestOutput]:
        try:
            async with asyncio.TaskGroup() as group:
                jobs = enumerate(zip(prompts, params, strict=True))
                tasks = [group.create_task(self._generate_one(index, *job)) for index, job in jobs]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the others were cancelled for it
        return [task.result() for task in tasks]

    async def _generate_one(self, index: int, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        final = replace(params, output_kind=RequestOutputKind.FINAL_ONLY)
        request_id = f"{id(self)}-{next(self._numbers)}"
        try:
            return [output async for output in self.engine.generate(prompt, final, request_id)][-1]
        except RequestError as error:
            error.add_note(f"This was prompt {index}.")
            raise


def _list_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Mapping) or is_token_list(prompts):
        return [prompts]
    return list(cast("Sequence[Prompt]", prompts))


def _list_conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> Sequence[Sequence[Message]]:
    if all(isinstance(message, Mapping) for message in messages):
        return [cast("Sequence[Message]", messages)]
    return cast("Sequence[Sequence[Message]]", messages)
