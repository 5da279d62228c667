"""Who may enter the engine. The same rules stand before the engine and before its thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from llmpack.errors import ContextLengthExceeded, DuplicateRequest, QueueFull, RequestError
from llmpack.runtime.metrics import RejectionReason
from llmpack.runtime.request import GenerationRequest
from llmpack.runtime.runner import RunnerShape


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Limits on what may be live at once, and on what fits a slot at all.

    Attributes:
        shape: The compiled shapes.
        max_running: Slots in use at most.
        max_waiting: Length of the queue at most, beyond what the free slots take.
    """

    shape: RunnerShape
    max_running: int
    max_waiting: int

    @property
    def max_live(self) -> int:
        """Sequences, running and waiting, that may be live at once."""
        return self.max_running + self.max_waiting

    def check(self, requests: Sequence[GenerationRequest], live_ids: Collection[str]) -> None:
        """Returns if all of `requests` may enter together beside the live ones.

        Raises:
            ContextLengthExceeded: A prompt, or a prompt and its max_tokens, are longer than a slot. So no sequence
                that entered can ever overflow its slot.
            DuplicateRequest: An id is live already, or stands twice in `requests`.
            QueueFull: There is no room for all of them now.
            RequestError: Empty prompt, token id outside the vocabulary, or more sequences than could ever be live.
        """
        seen: set[str] = set()
        for request in requests:
            self._check_prompt(request)
            self._check_length(request)
            if request.request_id in live_ids or request.request_id in seen:
                raise DuplicateRequest("the request id is in use", param="request_id", given=request.request_id)
            seen.add(request.request_id)
        self._check_room(len(requests), len(live_ids))

    def _check_prompt(self, request: GenerationRequest) -> None:
        if not request.prompt_ids:
            raise RequestError("the prompt has no tokens", param="prompt", allowed="at least one token")
        vocab_size = self.shape.vocab_size
        for token_id in (min(request.prompt_ids), max(request.prompt_ids)):
            if not 0 <= token_id < vocab_size:
                allowed = f"token ids in [0, {vocab_size})"
                raise RequestError("the prompt has a token id outside the vocabulary", param="prompt", given=token_id,
                                   allowed=allowed)  # fmt: skip

    def _check_length(self, request: GenerationRequest) -> None:
        prompt_len, max_seq_len = len(request.prompt_ids), self.shape.max_seq_len
        if prompt_len + request.max_tokens > max_seq_len:
            raise ContextLengthExceeded(
                f"the prompt of {prompt_len} tokens and max_tokens={request.max_tokens} do not fit max_seq_len",
                param="prompt" if prompt_len > max_seq_len else "max_tokens",
                code="context_length_exceeded",
                given=prompt_len + request.max_tokens,
                allowed=f"at most {max_seq_len} tokens together",
            )

    def _check_room(self, num_new: int, num_live: int) -> None:
        if num_new > self.max_live:
            raise RequestError("the request makes more sequences than the server ever holds", param="n",
                               given=num_new, allowed=f"at most {self.max_live}")  # fmt: skip
        if num_live + num_new > self.max_live:
            raise QueueFull(f"all {self.max_running} slots and the queue of {self.max_waiting} are full")


def find_rejection_reason(error: RequestError) -> RejectionReason:
    """The metrics label of a refusal."""
    if isinstance(error, QueueFull):
        return "queue_full"
    if isinstance(error, ContextLengthExceeded):
        return "context_length_exceeded"
    if isinstance(error, DuplicateRequest):
        return "duplicate_request"
    return "invalid_request"
