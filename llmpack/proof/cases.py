"""What a proof exercises: every program, chunk boundaries, reused slots, windows and rope lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmpack.plan.plan import CompilePlan

DECODE_STEPS = 3
COMPARED_ACROSS = 48
_ACROSS = "across a chunk boundary"


@dataclass(frozen=True, slots=True)
class ProofCase:
    """One sequence that is prefilled, then decoded with given tokens.

    Attributes:
        name: What it exercises.
        slot: Row of the cache; a later case in the same slot finds it used.
        token_ids: The whole sequence, prompt first.
        prompt_len: Tokens that are prefilled; the rest is decoded one by one.
        decode_bucket: The decode program that runs the rest.
        num_compared: Last positions of the prompt whose logits are compared; more than one go through the head
            program.
    """

    name: str
    slot: int
    token_ids: tuple[int, ...]
    prompt_len: int
    decode_bucket: int
    num_compared: int = 1

    @property
    def compared_positions(self) -> tuple[int, ...]:
        """Positions whose logits are compared, up to the end of the sequence."""
        return tuple(range(self.prompt_len - self.num_compared, len(self.token_ids)))


def build_cases(plan: CompilePlan) -> list[ProofCase]:
    """Returns the cases in the order in which they run, longest first so that later ones reuse dirty slots."""
    lengths: dict[str, int] = {}
    for bucket in plan.prefill_buckets:
        lengths[f"prefill-{bucket} exactly full"] = bucket
        lengths[f"prefill-{bucket} padded"] = max(1, bucket - 1 - bucket // 4)
    largest = plan.prefill_buckets[-1]
    lengths[_ACROSS] = largest + max(1, plan.prefill_buckets[0] // 2)
    for window in sorted({layer.attention.window for layer in plan.spec.layers} - {None}, key=lambda w: w or 0):
        lengths[f"past the sliding window of {window}"] = (window or 0) + 2
    for rope in plan.spec.ropes.values():
        original = rope.scaling.get("original_max_position_embeddings")
        if isinstance(original, int) and original < rope.max_position_embeddings:
            lengths[f"past the original rope length of {original}"] = original + 2
    if plan.max_seq_len <= 4 * largest:
        lengths["to the end of the slot"] = plan.max_seq_len - DECODE_STEPS
    fitting = {name: n for name, n in lengths.items() if n + DECODE_STEPS <= plan.max_seq_len}
    return _to_cases(plan, fitting or {"the shortest prompt": 1})


def _to_cases(plan: CompilePlan, lengths: dict[str, int]) -> list[ProofCase]:
    """Longest first. Slots and decode buckets go round, so that each bucket runs and slots are reused."""
    ordered = sorted(lengths.items(), key=lambda item: -item[1])
    buckets = plan.decode_buckets
    minimum = max(len(buckets), 2)
    ordered += [(f"{name}, again in a used slot", n) for name, n in ordered[-1:]] * max(0, minimum - len(ordered))
    cases = []
    for index, (name, length) in enumerate(ordered):
        steps = min(DECODE_STEPS, plan.max_seq_len - length)
        cases.append(
            ProofCase(
                name=name,
                slot=index % max(1, min(plan.batch_size, len(ordered) - 1)),
                token_ids=draw_tokens(plan.spec.vocab_size, length + steps, seed=index),
                prompt_len=length,
                decode_bucket=buckets[index % len(buckets)],
                num_compared=min(length, COMPARED_ACROSS) if name == _ACROSS else 1,
            )
        )
    return cases


def draw_tokens(vocab_size: int, count: int, *, seed: int) -> tuple[int, ...]:
    """Returns `count` tokens, the same ones for the same seed."""
    return tuple(int(i) for i in np.random.default_rng(seed).integers(0, vocab_size, count))
