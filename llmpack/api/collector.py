"""From what the engine's steps add to sequences to the outputs that a caller sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmpack.api.outputs import CompletionOutput, Logprob, RequestId, RequestOutput
from llmpack.api.prompts import EncodedPrompt
from llmpack.runtime.request import FinishReason, GenerationRequest, SequenceOutput, TokenLogprobs
from llmpack.runtime.sampling_params import RequestOutputKind
from llmpack.runtime.tokenizer import Tokenizer


@dataclass(slots=True)
class _Choice:
    """One sequence, added up. `logprobs` stays empty and `cumulative_logprob` None unless asked for."""

    index: int
    cumulative_logprob: float | None
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def build_output(self, text: str, first_token: int) -> CompletionOutput:
        """The choice with `text` and the tokens from `first_token` on."""
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=self.token_ids[first_token:],
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.cumulative_logprob is None else self.logprobs[first_token:],
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )


class OutputCollector:
    """Adds up the sequences of one request.

    Args:
        request_id: The caller's.
        prompt: Shared by all sequences.
        requests: The sequences; choice i is the i-th.
        kind: What each output carries.
        tokenizer: For the texts of logprobs.
    """

    def __init__(
        self,
        request_id: RequestId,
        prompt: EncodedPrompt,
        requests: Sequence[GenerationRequest],
        *,
        kind: RequestOutputKind,
        tokenizer: Tokenizer,
    ) -> None:
        self._request_id = request_id
        self._prompt = prompt
        self._kind = kind
        self._tokenizer = tokenizer
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._num_cached_tokens: int | None = None
        self._choices = {
            request.request_id: _Choice(index, None if request.num_logprobs is None else 0.0)
            for index, request in enumerate(requests)
        }

    def add(self, output: SequenceOutput) -> RequestOutput | None:
        """What the caller is to see now that `output` came, or None when there is nothing new for it."""
        choice = self._choices[output.request_id]
        first_token = len(choice.token_ids)
        if self._num_cached_tokens is None:
            self._num_cached_tokens = output.num_cached_tokens
        self._extend(choice, output)
        has_prompt_news = self._take_prompt_logprobs(output)
        if self._kind is RequestOutputKind.FINAL_ONLY:
            return self._build(self._all_choices()) if self._finished else None
        if not (output.text or output.token_ids or output.finish_reason or has_prompt_news):
            return None
        if self._kind is RequestOutputKind.CUMULATIVE:
            return self._build(self._all_choices())
        built = self._build([choice.build_output(output.text, first_token)])
        self._prompt_logprobs = [] if has_prompt_news else self._prompt_logprobs
        return built

    @property
    def _finished(self) -> bool:
        return all(choice.finish_reason is not None for choice in self._choices.values())

    def _all_choices(self) -> list[CompletionOutput]:
        return [choice.build_output(choice.text, 0) for choice in self._choices.values()]

    def _extend(self, choice: _Choice, output: SequenceOutput) -> None:
        choice.text += output.text
        choice.token_ids += output.token_ids
        choice.finish_reason, choice.stop_reason = output.finish_reason, output.stop_reason
        if choice.cumulative_logprob is not None:
            choice.logprobs += map(self._describe, output.logprobs)
            choice.cumulative_logprob += sum(entry.logprob for entry in output.logprobs)

    def _take_prompt_logprobs(self, output: SequenceOutput) -> bool:
        """Keeps those of the sequence that has them first; the others' are the same."""
        if output.prompt_logprobs is None or self._prompt_logprobs is not None:
            return False
        self._prompt_logprobs = [None if entry is None else self._describe(entry) for entry in output.prompt_logprobs]
        return True

    def _describe(self, entry: TokenLogprobs) -> dict[int, Logprob]:
        text = self._tokenizer.token_text
        described = {entry.token_id: Logprob(entry.logprob, entry.rank, text(entry.token_id))}
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1):
            described.setdefault(token_id, Logprob(logprob, rank, text(token_id)))
        return described

    def _build(self, outputs: list[CompletionOutput]) -> RequestOutput:
        return RequestOutput(
            request_id=self._request_id,
            prompt=self._prompt.text,
            prompt_token_ids=list(self._prompt.ids),
            prompt_logprobs=self._prompt_logprobs or None,
            outputs=outputs,
            finished=self._finished,
            num_cached_tokens=self._num_cached_tokens or 0,
        )
