"""A request as the engine sees it: every value decided, nothing left to guess.

`SamplingParams` is what a user writes; `GenerationRequest` is what was decided from it. Only the second travels
through scheduler, sampler and detokenizer. One GenerationRequest is one sequence: `n=3` becomes three of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from one row of logits. All values are final.

    Attributes:
        temperature: 0.0 means greedy; otherwise >= 0.01.
        top_k: 0 means off.
        top_p: In (0, 1]; 1.0 means off.
        min_p: In [0, 1]; 0.0 means off.
        repetition_penalty: > 0; counts prompt and output tokens. 1.0 means off.
        presence_penalty: In [-2, 2]; counts output tokens.
        frequency_penalty: In [-2, 2]; counts output tokens.
        logit_bias: Token id -> added logit, each in [-100, 100].
        allowed_token_ids: When not None, every other token is masked.
        bad_words_ids: Token id sequences that may not be completed.
        seed: Key of the request's counter-based generator; never None.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        request_id: Unique among live requests.
        prompt_ids: At least one id, each in [0, vocab_size).
        sampling: How tokens are chosen.
        max_tokens: Output tokens at most; 0 scores the prompt and generates nothing.
        min_tokens: EOS, stop ids and stop strings are held off until this many output tokens.
        eos_token_ids: Ids that end the sequence; empty under ignore_eos.
        stop_token_ids: Further ids that end the sequence, reported as stop_reason.
        stop: Strings that end the sequence.
        include_stop_str_in_output: Keep the matched stop string or stop token in the text.
        skip_special_tokens: Leave special tokens out of the text.
        num_logprobs: None for no logprobs, else how many alternatives beside the chosen token (0 is valid).
        num_prompt_logprobs: The same for the prompt's tokens.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    min_tokens: int = 0
    eos_token_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position, of the raw logits (before penalties and temperature), natural log.

    Attributes:
        token_id: The token that stands at this position.
        logprob: Its log-probability, finite (clamped at -9999.0).
        rank: 1 for the most likely token.
        top_ids: The most likely ids, best first, as many as were asked for.
        top_logprobs: Their log-probabilities.
    """

    token_id: int
    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one step added to one sequence.

    Concatenating `text` over a sequence's outputs gives its whole text; `token_ids` and `logprobs` likewise. Text
    is held back while it could still become part of a stop string or of an unfinished UTF-8 sequence; a token's id
    and logprobs are reported together with the output in which its text is released (or at the finish).

    Attributes:
        request_id: Whose sequence.
        text: Newly released text.
        token_ids: Ids of the tokens whose text was released by this output, stop and EOS tokens included.
        logprobs: One entry per id in `token_ids` when the request asked for logprobs, else empty.
        prompt_logprobs: Only in the first output of a request that asked for them: one entry per prompt token,
            the first None.
        finish_reason: None while running.
        stop_reason: The stop string or stop token id that matched; None for EOS and for length.
        num_output_tokens: Tokens sampled so far, held-back ones included.
        num_cached_tokens: Only in the first output: prompt tokens that stood in a slot already and were not computed.
        error: Why the engine gave this sequence up, in words for its client; finish_reason is then "abort". None also
            for an abort that was asked for.
        error_param: The field of the request that left no token to choose from; None when the request is not to blame.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    error: str | None = None
    error_param: str | None = None


Logits = npt.NDArray[np.float32]
