"""From sampled tokens to what a client sees: text, the ids and logprobs that belong to it, and why it ended.

    token -> is it EOS or a stop id?  -> detokenizer -> stop strings -> released text
                                             |               |
                                      unfinished bytes   start of a stop string      (both held back)

Token ids and logprobs leave together with the last character of their text; at the finish all of them leave.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from llmpack.runtime.detokenizer import IncrementalDetokenizer
from llmpack.runtime.request import FinishReason, GenerationRequest, SequenceOutput
from llmpack.runtime.sampler import SampledToken
from llmpack.runtime.stop_strings import StopMatcher
from llmpack.runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Ending:
    """Why a sequence ended."""

    finish_reason: FinishReason
    stop_reason: str | int | None = None


class OutputAssembler:
    """Assembles the outputs of one sequence.

    Args:
        tokenizer: The model's tokenizer.
        request: The sequence's request.
    """

    def __init__(self, tokenizer: Tokenizer, request: GenerationRequest) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._detokenizer = IncrementalDetokenizer(tokenizer, request.prompt_ids, request.skip_special_tokens)
        self._matcher = StopMatcher(request.stop, request.include_stop_str_in_output)
        self._num_output_tokens = 0
        self._num_characters = 0
        self._tokens: list[SampledToken] = []
        # For the first of `_tokens`: the number of characters that must be out before the token may leave, ascending.
        self._ends: list[int] = []

    def append(self, token: SampledToken) -> SequenceOutput:
        """What this token adds. Append no more once an output has a finish_reason.

        Args:
            token: A token without an error.
        """
        assert token.error is None, "a failed row has no token to append"
        self._num_output_tokens += 1
        self._tokens.append(token)
        ending = self._ending_by_id(token.token_id)
        if ending is not None and not self._request.include_stop_str_in_output:
            return self._finish(ending)
        text, matched = self._match(self._detokenizer.push(token.token_id))
        if matched is not None:
            return self._output(text, _Ending("stop", matched))
        if ending is None and self._num_output_tokens >= self._request.max_tokens:
            ending = _Ending("length")
        return self._output(text) if ending is None else self._finish(ending, text)

    def finish(self, reason: FinishReason) -> SequenceOutput:
        """The last output of a sequence that the engine ends: everything held back.

        A stop string that only the flushed bytes complete turns the reason into "stop".
        """
        return self._finish(_Ending(reason))

    @property
    def _past_min_tokens(self) -> bool:
        """Whether the newest token may end the sequence."""
        return self._num_output_tokens > self._request.min_tokens

    def _ending_by_id(self, token_id: int) -> _Ending | None:
        request = self._request
        is_eos = token_id in request.eos_token_ids
        if not self._past_min_tokens or not (is_eos or token_id in request.stop_token_ids):
            return None
        spelled = self._stop_spelling(token_id)
        return _Ending("stop", spelled if spelled is not None else None if is_eos else token_id)

    def _stop_spelling(self, token_id: int) -> str | None:
        """The stop string that is the text of this special token."""
        if not self._tokenizer.is_special(token_id):
            return None
        return next((stop for stop in self._request.stop if self._tokenizer.id_of(stop) == token_id), None)

    def _match(self, text: str) -> tuple[str, str | None]:
        self._num_characters += len(text)
        return self._matcher.feed(text) if self._past_min_tokens else (text, None)

    def _finish(self, ending: _Ending, text: str = "") -> SequenceOutput:
        rest, matched = self._match(self._detokenizer.flush())
        if matched is not None:
            return self._output(text + rest, _Ending("stop", matched))
        rest += self._matcher.flush()
        # Only a special token's spelling gets here as a string; hidden from the text, it is put back.
        if self._request.include_stop_str_in_output and isinstance(ending.stop_reason, str):
            rest += ending.stop_reason
        return self._output(text + rest, ending)

    def _output(self, text: str, ending: _Ending | None = None) -> SequenceOutput:
        leaving = self._take_tokens(everything=ending is not None)
        return SequenceOutput(
            request_id=self._request.request_id,
            text=text,
            token_ids=tuple(token.token_id for token in leaving),
            logprobs=tuple(token.logprobs for token in leaving if token.logprobs is not None),
            finish_reason=None if ending is None else ending.finish_reason,
            stop_reason=None if ending is None else ending.stop_reason,
            num_output_tokens=self._num_output_tokens,
        )

    def _take_tokens(self, everything: bool) -> list[SampledToken]:
        """Removes and returns the tokens whose text is out."""
        if not self._detokenizer.has_pending:
            self._ends += [self._num_characters] * (len(self._tokens) - len(self._ends))
        num_out = self._num_characters - self._matcher.num_held
        count = len(self._tokens) if everything else bisect_right(self._ends, num_out)
        leaving = self._tokens[:count]
        del self._tokens[:count], self._ends[:count]
        return leaving
