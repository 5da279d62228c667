"""What a user asks for, under vLLM's names. `resolve.py` turns it into what the engine is told.

Source of names, defaults and meanings: vLLM 0.32 `SamplingParams`; of ranges: the OpenAI API reference where it has the
field (temperature up to 2, n up to 128, logit_bias within 100).
"""

from __future__ import annotations

import enum
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from llmpack.errors import RequestError

MAX_STOP_STRINGS = 4
MAX_STOP_LEN = 4096
MAX_BAD_WORDS = 256
MAX_LOGIT_BIAS = 100.0
_INT64 = 2**63
_MAX_COUNT = 2**31 - 1
_MAX_SHOWN_BITS = 256
_MAX_ID_DIGITS = 18


class RequestOutputKind(enum.Enum):
    """What each `RequestOutput` of a generation carries."""

    CUMULATIVE = 0
    """Everything generated so far."""
    DELTA = 1
    """What is new since the last one."""
    FINAL_ONLY = 2
    """Only one output, the finished one."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Allowed values of one numeric field: low <= value <= high."""

    name: str
    low: float
    high: float
    integer: bool = False
    optional: bool = False
    above_low: bool = False

    def check(self, value: object) -> None:
        if value is None and self.optional:
            return
        # NaN fails every comparison.
        number = is_integer(value) if self.integer else _is_number(value)
        good = number and self.low <= value <= self.high  # type: ignore[operator]
        if not good or (self.above_low and value == self.low):
            noun = "an integer" if self.integer else "a number"
            raise _refusal(f"{self.name} must be {noun} in its range", self.name, value, self._in_words())

    def _in_words(self) -> str:
        low = f"above {self.low}" if self.above_low else f"{self.low}"
        return f"{low} up to {self.high}" + (", or null" if self.optional else "")


_RANGES = (
    _Range("n", 1, 128, integer=True),
    _Range("temperature", 0.0, 2.0),
    _Range("top_p", 0.0, 1.0, above_low=True),
    _Range("top_k", -1, _MAX_COUNT, integer=True),
    _Range("min_p", 0.0, 1.0),
    _Range("repetition_penalty", 1e-6, 1e6),
    _Range("presence_penalty", -2.0, 2.0),
    _Range("frequency_penalty", -2.0, 2.0),
    _Range("max_tokens", 0, _MAX_COUNT, integer=True, optional=True),
    _Range("min_tokens", 0, _MAX_COUNT, integer=True),
    _Range("logprobs", -1, _MAX_COUNT, integer=True, optional=True),
    _Range("prompt_logprobs", -1, _MAX_COUNT, integer=True, optional=True),
)
_FLAGS = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens")
_ID_LISTS = ("stop_token_ids", "allowed_token_ids")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How to generate. Everything is checked on construction but what needs the model (vocabulary, context length).

    Attributes:
        n: Choices per prompt.
        temperature: 0 (anything below 1e-5) is greedy; from there up to 0.01 counts as 0.01.
        top_p: Keep the most likely tokens whose probabilities together reach this.
        top_k: Keep this many tokens; 0 and -1 keep all.
        min_p: Drop tokens less likely than this fraction of the most likely one.
        repetition_penalty: Divides positive and multiplies negative logits of tokens in the prompt or the output.
        presence_penalty: Subtracted once from tokens in the output.
        frequency_penalty: Subtracted per occurrence in the output.
        logit_bias: Token id (or its decimal string) -> added to the logit, within [-100, 100].
        allowed_token_ids: When given, no other token is generated.
        bad_words: Up to 256 words that are not generated, with or without a space before them.
        max_tokens: None for as many as the context holds; 0 scores the prompt only.
        min_tokens: Output tokens before which neither EOS nor any stop ends the output.
        stop: Up to four strings that end the output.
        stop_token_ids: Tokens that end the output.
        include_stop_str_in_output: Keep what ended the output in the text.
        ignore_eos: Go on after any of the model's EOS tokens; `stop_token_ids` still end the output.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: Accepted; fast tokenizers have no such setting.
        seed: None or -1 for an arbitrary one.
        logprobs: Alternatives to report per output token; 0 reports the chosen token, -1 all.
        prompt_logprobs: The same for the prompt's tokens.
        output_kind: What `AsyncLLMEngine.generate` yields.

    Raises:
        RequestError: A value is of the wrong type or out of range; `param` names it.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Mapping[str, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __post_init__(self) -> None:
        """Checks every field."""
        for allowed in _RANGES:
            allowed.check(getattr(self, allowed.name))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise _refusal(f"{name} must be a boolean", name, getattr(self, name), "true or false")
        for name in _ID_LISTS:
            _check_ids(name, getattr(self, name))
        _check_seed(self.seed)
        _check_stops(self.stop_strings)
        _check_bad_words(self.bad_words)
        self._check_combinations()
        self.token_biases()

    def _check_combinations(self) -> None:
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise _refusal("allowed_token_ids must not be empty", "allowed_token_ids", [], "at least one token id")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _refusal(
                "min_tokens must not exceed max_tokens", "min_tokens", self.min_tokens, f"0 up to {self.max_tokens}"
            )
        if not isinstance(self.output_kind, RequestOutputKind):
            raise _refusal("output_kind is unknown", "output_kind", self.output_kind, "a RequestOutputKind")

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def token_biases(self) -> dict[int, float]:
        """`logit_bias` with integer keys.

        Raises:
            RequestError: A key is no token id, or a value is out of range.
        """
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise _refusal("logit_bias must be an object", "logit_bias", self.logit_bias, "token id -> number")
        return {_token_id(key): _bias(value) for key, value in (self.logit_bias or {}).items()}


def _refusal(what: str, param: str, given: object, allowed: str) -> RequestError:
    # Python refuses to print integers of more than 4300 digits.
    if isinstance(given, int) and given.bit_length() > _MAX_SHOWN_BITS:
        given = f"an integer of {given.bit_length()} bits"
    return RequestError(what, param=param, given=given, allowed=allowed)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether the value is an integer, numpy's included, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_ids(name: str, ids: object) -> None:
    if ids is None:
        return
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
        raise _refusal(f"{name} must be a list", name, ids, "token ids")
    for token_id in ids:
        if not is_integer(token_id):
            raise _refusal(f"{name} must hold integers", name, token_id, "token ids")


def _check_seed(seed: object) -> None:
    # JSON writers in some languages send 1.0 for 1.
    whole = is_integer(seed) or (isinstance(seed, float) and seed.is_integer())
    if seed is not None and not (whole and -_INT64 <= seed < _INT64):  # type: ignore[operator]
        raise _refusal("seed must be a 64-bit integer", "seed", seed, "-2**63 up to 2**63 - 1, or null")


def _check_stops(stops: tuple[object, ...]) -> None:
    if len(stops) > MAX_STOP_STRINGS:
        raise _refusal("stop has too many strings", "stop", len(stops), f"at most {MAX_STOP_STRINGS}")
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise _refusal("stop must hold non-empty strings", "stop", stop, "a string or a list of strings")
        if len(stop) > MAX_STOP_LEN:
            raise _refusal("a stop string is too long", "stop", stop, f"at most {MAX_STOP_LEN} characters")


def _check_bad_words(words: object) -> None:
    if words is None:
        return
    if not isinstance(words, Sequence) or isinstance(words, str | bytes):
        raise _refusal("bad_words must be a list", "bad_words", words, "non-empty strings")
    if len(words) > MAX_BAD_WORDS:  # each of them is looked for at every token
        raise _refusal("too many bad_words", "bad_words", len(words), f"at most {MAX_BAD_WORDS}")
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise _refusal("bad_words must hold words", "bad_words", word, "non-empty strings")
        if len(word) > MAX_STOP_LEN:
            raise _refusal("a bad word is too long", "bad_words", word, f"at most {MAX_STOP_LEN} characters")


def _token_id(key: object) -> int:
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= _MAX_ID_DIGITS:
        return int(key)
    if is_integer(key):
        return int(key)
    raise _refusal("logit_bias has a key that is no token id", "logit_bias", key, "decimal token ids")


def _bias(value: object) -> float:
    _Range("logit_bias", -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS).check(value)
    return float(value)  # type: ignore[arg-type]
