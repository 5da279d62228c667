"""From what a user asked for to what the engine does: `SamplingParams` + prompt -> `GenerationRequest`s.

Everything that needs the model is checked here, once: token ids against the vocabulary, lengths against the compiled
context. After this no value means "default", -1 or unknown.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmpack.errors import ContextLengthExceeded, RequestError
from llmpack.runtime.request import GenerationRequest, Sampling
from llmpack.runtime.rng import choice_seed
from llmpack.runtime.sampling_params import SamplingParams, is_integer
from llmpack.runtime.tokenizer import Tokenizer

_GREEDY_BELOW = 1e-5
_MIN_TEMPERATURE = 0.01


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What the compiled model allows.

    Attributes:
        vocab_size: Width of the logits; token ids are in [0, vocab_size).
        max_seq_len: Tokens of a slot, prompt and output together.
        eos_token_ids: Ids that end a sequence.
        max_logprobs: Most alternatives a request may ask for per position.
    """

    vocab_size: int
    max_seq_len: int
    eos_token_ids: frozenset[int]
    max_logprobs: int = 20


def resolve_requests(
    params: SamplingParams,
    prompt_ids: Sequence[int],
    *,
    request_id: str,
    tokenizer: Tokenizer,
    limits: ModelLimits,
) -> list[GenerationRequest]:
    """The `n` sequences of one prompt, with ids "<request_id>" (n = 1) or "<request_id>-<choice>".

    Choices of a seeded request have different seeds, the same ones each time; the first is the request's own.

    Raises:
        ContextLengthExceeded: Prompt and output do not fit `max_seq_len`.
        RequestError: A token id is outside the vocabulary, the prompt is empty, or too many logprobs are asked for.
    """
    _check_vocabulary("prompt", prompt_ids, limits)
    first = GenerationRequest(
        request_id=request_id,
        prompt_ids=tuple(int(token_id) for token_id in prompt_ids),
        sampling=_resolve_sampling(params, tokenizer, limits),
        max_tokens=_resolve_max_tokens(params, len(prompt_ids), limits),
        min_tokens=int(params.min_tokens),
        eos_token_ids=frozenset() if params.ignore_eos else limits.eos_token_ids,
        stop_token_ids=_resolve_stop_ids(params, tokenizer, limits),
        stop=params.stop_strings,
        include_stop_str_in_output=params.include_stop_str_in_output,
        skip_special_tokens=params.skip_special_tokens,
        num_logprobs=_resolve_num_logprobs("logprobs", params.logprobs, limits),
        num_prompt_logprobs=_resolve_num_logprobs("prompt_logprobs", params.prompt_logprobs, limits),
    )
    return [first] if params.n == 1 else [_choice(first, number) for number in range(params.n)]


def _choice(first: GenerationRequest, number: int) -> GenerationRequest:
    sampling = replace(first.sampling, seed=choice_seed(first.sampling.seed, number))
    return replace(first, request_id=f"{first.request_id}-{number}", sampling=sampling)


def _resolve_sampling(params: SamplingParams, tokenizer: Tokenizer, limits: ModelLimits) -> Sampling:
    biases = params.token_biases()
    _check_vocabulary("logit_bias", biases, limits)
    allowed = params.allowed_token_ids
    _check_vocabulary("allowed_token_ids", allowed or (), limits)
    return Sampling(
        temperature=_resolve_temperature(params.temperature),
        top_k=max(int(params.top_k), 0) if params.top_k < limits.vocab_size else 0,
        top_p=float(params.top_p),
        min_p=float(params.min_p),
        repetition_penalty=float(params.repetition_penalty),
        presence_penalty=float(params.presence_penalty),
        frequency_penalty=float(params.frequency_penalty),
        logit_bias=biases,
        allowed_token_ids=None if allowed is None else tuple(sorted({int(token_id) for token_id in allowed})),
        bad_words_ids=_resolve_bad_words(params.bad_words or (), tokenizer),
        seed=_resolve_seed(params.seed),
    )


def _resolve_temperature(temperature: float) -> float:
    """0.0 for greedy; very small temperatures are raised, as vLLM does, to keep float32 out of trouble."""
    return 0.0 if temperature < _GREEDY_BELOW else max(float(temperature), _MIN_TEMPERATURE)


def _resolve_seed(seed: float | None) -> int:
    return secrets.randbits(64) if seed is None or seed == -1 else int(seed) % 2**64


def _resolve_bad_words(words: Iterable[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it is tokenised at the start of a line, after a space and in the middle of a word."""
    # Metaspace tokenizers put a space before the whole text; a newline in front takes it away from the word.
    line = tokenizer.encode("\n", add_special_tokens=False)
    sequences: dict[tuple[int, ...], None] = {}
    for word in (word.strip() for word in words):
        sequences[tuple(tokenizer.encode(word, add_special_tokens=False))] = None
        sequences[tuple(tokenizer.encode(f" {word}", add_special_tokens=False))] = None
        after_line = tokenizer.encode(f"\n{word}", add_special_tokens=False)
        if after_line[: len(line)] == line:
            sequences[tuple(after_line[len(line) :])] = None
    return tuple(sequence for sequence in sequences if sequence)


def _resolve_stop_ids(params: SamplingParams, tokenizer: Tokenizer, limits: ModelLimits) -> frozenset[int]:
    """The given ids and those of special tokens that a stop string spells.

    The text of a hidden special token never reaches the stop strings, so the id must stop in its place.
    """
    ids = {int(token_id) for token_id in params.stop_token_ids or ()}
    _check_vocabulary("stop_token_ids", ids, limits)
    spelled = {tokenizer.id_of(stop) for stop in params.stop_strings}
    return (tokenizer.special_ids & spelled) | ids


def _resolve_num_logprobs(param: str, asked: int | None, limits: ModelLimits) -> int | None:
    if asked is None:
        return None
    count = limits.vocab_size if asked == -1 else int(asked)
    if count > limits.max_logprobs:
        raise RequestError(f"{param} is too large", param=param, given=asked, allowed=f"0 up to {limits.max_logprobs}")
    return count


def _resolve_max_tokens(params: SamplingParams, num_prompt_tokens: int, limits: ModelLimits) -> int:
    if num_prompt_tokens == 0:
        raise RequestError("the prompt is empty", param="prompt", allowed="at least one token")
    room = limits.max_seq_len - num_prompt_tokens
    if room < (0 if params.max_tokens == 0 else 1):
        raise _too_long("prompt", params.max_tokens, num_prompt_tokens, limits)
    if params.max_tokens is not None and params.max_tokens > room:
        raise _too_long("max_tokens", params.max_tokens, num_prompt_tokens, limits)
    if params.min_tokens > room:
        raise _too_long("min_tokens", params.min_tokens, num_prompt_tokens, limits)
    return room if params.max_tokens is None else int(params.max_tokens)


def _too_long(param: str, requested: int | None, num_prompt_tokens: int, limits: ModelLimits) -> ContextLengthExceeded:
    output = "at least 1 output token" if requested is None else f"{requested} output tokens"
    return ContextLengthExceeded(
        f"this model's maximum context length is {limits.max_seq_len} tokens, but the request has "
        f"{num_prompt_tokens} prompt tokens and asks for {output}",
        param=param,
        code="context_length_exceeded",
        next_step="Shorten the prompt or lower max_tokens.",
    )


def _check_vocabulary(param: str, ids: Iterable[int], limits: ModelLimits) -> None:
    for token_id in ids:
        if not is_integer(token_id) or not 0 <= token_id < limits.vocab_size:
            raise RequestError(
                f"{param} has a token id outside the vocabulary",
                param=param,
                given=token_id,
                allowed=f"0 up to {limits.vocab_size - 1}",
            )
