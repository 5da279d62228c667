"""Random compiled shapes and requests for the tests of the runtime."""

from __future__ import annotations

from hypothesis import strategies as st

from llmpack.runtime.request import GenerationRequest, Sampling
from llmpack.runtime.runner import RunnerShape

VOCAB_SIZE = 97


@st.composite
def runner_shapes(draw: st.DrawFn, max_batch_size: int = 6, max_seq_len: int = 40) -> RunnerShape:
    batch_size = draw(st.integers(1, max_batch_size))
    seq_len = draw(st.integers(2, max_seq_len))
    prefill = draw(st.sets(st.integers(1, seq_len), min_size=1, max_size=3))
    decode = draw(st.sets(st.integers(1, batch_size), max_size=2)) | {batch_size}
    return RunnerShape(batch_size, seq_len, VOCAB_SIZE, tuple(sorted(prefill)), tuple(sorted(decode)))


@st.composite
def requests_for(draw: st.DrawFn, shape: RunnerShape, request_id: str = "r") -> GenerationRequest:
    """A greedy or seeded request that fits a slot."""
    max_tokens = draw(st.integers(0, min(8, shape.max_seq_len - 1)))
    prompt_len = draw(st.integers(1, shape.max_seq_len - max_tokens))
    first_id = draw(st.integers(0, VOCAB_SIZE - 1))
    return make_request(
        request_id,
        prompt_ids=tuple((first_id + 7 * position) % VOCAB_SIZE for position in range(prompt_len)),
        max_tokens=max_tokens,
        temperature=draw(st.sampled_from([0.0, 0.8])),
        num_prompt_logprobs=draw(st.sampled_from([None, 0, 2])),
    )


def make_request(
    request_id: str = "r",
    prompt_ids: tuple[int, ...] = (1, 2, 3),
    max_tokens: int = 4,
    temperature: float = 0.0,
    num_prompt_logprobs: int | None = None,
    eos_token_ids: frozenset[int] = frozenset(),
) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt_ids=prompt_ids,
        sampling=Sampling(temperature=temperature, seed=sum(prompt_ids) + 1),
        max_tokens=max_tokens,
        eos_token_ids=eos_token_ids,
        num_prompt_logprobs=num_prompt_logprobs,
    )
