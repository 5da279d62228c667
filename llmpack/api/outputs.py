"""What generation returns. Source of names and meanings: vLLM 0.32 `RequestOutput`, `CompletionOutput`, `Logprob`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from llmpack.runtime.request import FinishReason

RequestId: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Logprob:
    r"""One token at one position.

    Attributes:
        logprob: Natural log of its probability before penalties and temperature, clamped at -9999.0.
        rank: 1 for the most likely token of the position.
        decoded_token: Its text; `bytes:\xe2\x82` when it is no whole characters.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of a request: all of it, or under `RequestOutputKind.DELTA` what is new.

    Attributes:
        index: Which choice, in [0, n).
        text: Text that no later output takes back; it waits while it may become part of a stop string.
        token_ids: Ids of the tokens whose text is out, stop and EOS tokens included.
        cumulative_logprob: Sum over all tokens so far, under DELTA too; None unless logprobs were asked for.
        logprobs: One entry per id in `token_ids`: the chosen token first, then the alternatives, best first. None
            unless logprobs were asked for.
        finish_reason: None while running.
        stop_reason: The stop string or stop token id that matched; None for EOS and for length.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def finished(self) -> bool:
        """Whether this choice is at its end."""
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The state of one request when it was yielded; later outputs are new objects.

    Attributes:
        request_id: As it was given, an int or a str.
        prompt: The text; None for a prompt of token ids alone.
        prompt_token_ids: What the model was given.
        prompt_logprobs: One entry per prompt token, the first None; None unless asked for. Under DELTA only the first
            output has them.
        outputs: The choices by index; under DELTA only the one that has something new.
        finished: Whether all choices are at their end. No output follows.
        num_cached_tokens: Prompt tokens that stood in a slot already and were not computed again, by the first choice
            that began; 0 before that.
    """

    request_id: RequestId
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
