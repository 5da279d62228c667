"""A tokenizer of single letters, an engine over paper arithmetic, and what that engine must answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from llmpack.runtime.engine import Engine
from llmpack.runtime.paper_runner import paper_logits
from llmpack.runtime.request import GenerationRequest, SequenceOutput
from llmpack.runtime.sampler import Sampler, SamplerState
from llmpack.runtime.stream import merge_outputs
from llmpack.runtime.tokenizer import Tokenizer
from tests.runtime.shapes import VOCAB_SIZE


@cache
def letter_tokenizer() -> Tokenizer:
    """One token per printable character: id 0 is "!", id 1 is '"', and so on."""
    letters = sorted(letter for letter in ByteLevel.alphabet() if letter.isascii())
    letters += sorted(letter for letter in ByteLevel.alphabet() if not letter.isascii())
    backend = tokenizers.Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    return Tokenizer(backend, {})


def expected_ids(request: GenerationRequest) -> list[int]:
    """The tokens of a request that ends by max_tokens, worked out without slots, chunks or batches."""
    sampler, state = Sampler(VOCAB_SIZE), SamplerState(request, VOCAB_SIZE)
    prefix = list(request.prompt_ids)
    for _ in range(request.max_tokens):
        token = sampler.sample(paper_logits(prefix, VOCAB_SIZE)[None, :], [state])[0]
        state.append(token.token_id)
        prefix.append(token.token_id)
    return prefix[len(request.prompt_ids) :]


def run_to_end(engine: Engine) -> list[SequenceOutput]:
    outputs: list[SequenceOutput] = []
    while engine.has_work:
        outputs += engine.step()
    return outputs


def merge_by_id(outputs: Iterable[SequenceOutput]) -> dict[str, SequenceOutput]:
    grouped: dict[str, list[SequenceOutput]] = {}
    for output in outputs:
        grouped.setdefault(output.request_id, []).append(output)
    return {request_id: merge_outputs(group) for request_id, group in grouped.items()}


def generate(engine: Engine, requests: Sequence[GenerationRequest]) -> dict[str, SequenceOutput]:
    engine.add_all(requests)
    return merge_by_id(run_to_end(engine))
