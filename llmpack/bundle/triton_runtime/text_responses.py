"""From what the engine adds to the sequences of one request to the output tensors of its responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from llmpack.bundle.triton_runtime.settings import StreamText
from llmpack.bundle.triton_runtime.text_request import TextRequest
from llmpack.errors import EngineError, RequestError
from llmpack.runtime.request import FinishReason, SequenceOutput, TokenLogprobs
from llmpack.runtime.tokenizer import Tokenizer

OutputTensors = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class _Choice:
    """One sequence: everything so far, and where the part begins that no response has carried yet."""

    text: str = ""
    num_sent_characters: int = 0
    num_new_tokens: int = 0
    new_logprobs: list[TokenLogprobs] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    finish_reason: FinishReason | None = None


class TextResponses:
    """Collects the outputs of the `n` sequences of a request.

    Args:
        request: What was asked for.
        request_ids: The sequences, in the order of the choices.
        num_input_tokens: Length of the prompt.
        tokenizer: For the texts of logprobs.
        stream_text: What a streamed response carries.
    """

    def __init__(
        self,
        request: TextRequest,
        request_ids: Sequence[str],
        *,
        num_input_tokens: int,
        tokenizer: Tokenizer,
        stream_text: StreamText,
    ) -> None:
        self._request = request
        self._num_input_tokens = num_input_tokens
        self._tokenizer = tokenizer
        is_cumulative = request.is_streamed and stream_text == "cumulative"
        self._prefix = request.prompt if request.is_echoed or is_cumulative else ""
        self._is_cumulative = is_cumulative
        self._choices = {request_id: _Choice() for request_id in request_ids}
        self._has_news = False
        self.num_output_tokens = 0

    @property
    def is_finished(self) -> bool:
        """Whether all sequences are at their end."""
        return all(choice.finish_reason is not None for choice in self._choices.values())

    @property
    def has_news(self) -> bool:
        """Whether a response would say anything that none has said."""
        return self._has_news

    def add(self, output: SequenceOutput) -> None:
        """Adds what came for one sequence.

        Raises:
            RequestError: The request left its sequence no token to choose from.
            EngineError: The engine gave the sequence up.
        """
        _check_alive(output)
        choice = self._choices[output.request_id]
        choice.text += output.text
        choice.num_new_tokens += len(output.token_ids)
        choice.new_logprobs += output.logprobs
        choice.cumulative_logprob += sum(entry.logprob for entry in output.logprobs)
        choice.finish_reason = output.finish_reason
        self.num_output_tokens += len(output.token_ids)
        self._has_news |= bool(output.text or output.token_ids or output.finish_reason)

    def take(self) -> OutputTensors:
        """The tensors of the next response; what they hold will not be in the one after it."""
        choices = self._choices.values()
        tensors = {"text_output": _strings([self._text_of(choice) for choice in choices])}
        tensors |= {name: self._extra(name) for name in sorted(self._request.extra_outputs)}
        for choice in choices:
            choice.num_sent_characters = len(choice.text)
            choice.num_new_tokens = 0
            choice.new_logprobs = []
        self._has_news = False
        return tensors

    def _text_of(self, choice: _Choice) -> str:
        return self._prefix + (choice.text if self._is_cumulative else choice.text[choice.num_sent_characters :])

    def _extra(self, name: str) -> npt.NDArray[Any]:
        choices = self._choices.values()
        if name == "finish_reason":
            return _strings([str(choice.finish_reason) for choice in choices])
        if name == "cumulative_logprob":
            return np.array([choice.cumulative_logprob for choice in choices], dtype=np.float32)
        if name == "logprobs":
            return _strings([self._logprobs_of(choice) for choice in choices])
        if name == "num_input_tokens":
            return np.array(self._num_input_tokens, dtype=np.uint32)  # without a dimension, as the reference sends it
        return np.array([choice.num_new_tokens for choice in choices], dtype=np.uint32)

    def _logprobs_of(self, choice: _Choice) -> str:
        if not self._request.wants_logprobs:
            return "null"
        return json.dumps([self._describe(entry) for entry in choice.new_logprobs])

    def _describe(self, entry: TokenLogprobs) -> dict[str, dict[str, object]]:
        text = self._tokenizer.token_text
        chosen = {"logprob": entry.logprob, "rank": entry.rank, "decoded_token": text(entry.token_id)}
        described: dict[str, dict[str, object]] = {str(entry.token_id): chosen}
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1):
            described.setdefault(str(token_id), {"logprob": logprob, "rank": rank, "decoded_token": text(token_id)})
        return described


def _check_alive(output: SequenceOutput) -> None:
    if output.error is not None and output.error_param is not None:
        raise RequestError(output.error, param=output.error_param)
    if output.finish_reason == "abort":
        raise EngineError(output.error or "the model is being unloaded")


def _strings(texts: Sequence[str]) -> npt.NDArray[np.object_]:
    return np.array([text.encode("utf-8") for text in texts], dtype=np.object_)
