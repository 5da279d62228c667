"""The state of one live sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmpack.runtime.chunk_plan import ChunkSpan, plan_chunks
from llmpack.runtime.metrics import SequenceTimes
from llmpack.runtime.prefix_cache import reusable_len
from llmpack.runtime.request import GenerationRequest, TokenLogprobs
from llmpack.runtime.runner import RunnerShape

if TYPE_CHECKING:
    from llmpack.runtime.assembler import OutputAssembler
    from llmpack.runtime.sampler import SamplerState


class SequenceState:
    """One sequence from its admission to the queue until it finishes.

    waiting (no slot) -> prefilling (a slot, chunks left) -> decoding (prompt in the slot, one token pending)

    Attributes:
        request: What is to be generated.
        slot: Row of the cache, or None while waiting.
        num_cached: Tokens in the slot. While decoding, the newest token is not among them yet.
        num_reused: Tokens of the prompt that were not computed again.
        has_begun: The slot holds tokens of this sequence, and nothing else that counts.
        last_token_id: The newest sampled token, the input of the next decode; None before the first.
        prompt_logprobs: Filled during prefill when asked for: one entry per position scored so far, the first None.
        sampler_state: Set by the engine when the prompt is in the slot.
        assembler: Set by the engine when the prompt is in the slot.
        times: When it arrived, was admitted and got its tokens.
    """

    def __init__(self, request: GenerationRequest, shape: RunnerShape, arrived_s: float = 0.0) -> None:
        self.request = request
        self.slot: int | None = None
        self.num_cached = 0
        self.num_reused = 0
        self.has_begun = False
        self.last_token_id: int | None = None
        self.prompt_logprobs: list[TokenLogprobs | None] = [None]
        self.sampler_state: SamplerState | None = None
        self.assembler: OutputAssembler | None = None
        self.times = SequenceTimes(arrived_s)
        self._chunk_len = shape.prefill_buckets[-1]
        self._chunks = plan_chunks(len(request.prompt_ids), shape)
        self._num_chunks_done = 0

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def next_chunk(self) -> ChunkSpan | None:
        """The chunk to prefill next, or None when the whole prompt is in the slot."""
        if self._num_chunks_done == len(self._chunks):
            return None
        return self._chunks[self._num_chunks_done]

    @property
    def is_decoding(self) -> bool:
        """Whether a sampled token waits to be put through the model."""
        return self.last_token_id is not None

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled so far."""
        return 0 if self.sampler_state is None else self.sampler_state.num_output_tokens

    @property
    def max_reused(self) -> int:
        """Tokens of the prompt that need not be computed: never the last chunk's, whose logits are wanted."""
        if self.request.num_prompt_logprobs is not None:
            return 0
        return reusable_len(self._chunks[:-1], self._chunk_len)

    @property
    def num_reusable(self) -> int:
        """Tokens in the slot that other prompts with the same beginning may reuse."""
        return reusable_len(self._chunks[: self._num_chunks_done], self._chunk_len)

    def begin(self, num_reused: int) -> None:
        """Notes that the slot holds the first `num_reused` tokens of the prompt, a number of whole chunks."""
        self.has_begun = True
        self.num_cached = self.num_reused = num_reused
        self._num_chunks_done = num_reused // self._chunk_len

    def finish_chunk(self) -> None:
        """Notes that `next_chunk` is in the slot."""
        self.num_cached = self._chunks[self._num_chunks_done].end
        self._num_chunks_done += 1

    def accept_token(self, token_id: int) -> None:
        """Makes a sampled token the input of the next decode; the one before it is in the slot by now."""
        assert self.sampler_state is not None
        if self.is_decoding:
            self.num_cached += 1
        self.last_token_id = token_id
        self.sampler_state.append(token_id)
