"""What is measured: four loads, the same for every engine and server.

| name | load | where |
|---|---|---|
| W1 | prompts of 32 tokens, 128 tokens of output, at several concurrencies | engine, or HTTP beside another server |
| W2 | one prompt of 1024 tokens: time to its first token | engine, or HTTP beside another server |
| W3 | 32 requests of mixed lengths, all waiting for 8 slots | engine |
| W4 | the requests of W3 from 8 clients, streamed | HTTP |

Prompts are random ids, other ones in each round, so that no server can answer from a prefix that it has kept. Outputs
are greedy and never end early, so that everyone computes the same number of tokens.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

WorkloadName = Literal["W1", "W2", "W3", "W4"]
WORKLOADS: tuple[WorkloadName, ...] = get_args(WorkloadName)

CONCURRENCIES = (1, 4, 8, 16)
MIXED_CONCURRENCY = 8

_SHORT = (32, 128)  # prompt and output tokens of W1
_LONG_PROMPT = 1024


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of one request.

    Attributes:
        prompt_len: Tokens of the prompt, at least 1.
        max_tokens: Tokens of the output; it never ends earlier.
    """

    prompt_len: int
    max_tokens: int

    @property
    def total(self) -> int:
        """Positions of a slot that the request takes."""
        return self.prompt_len + self.max_tokens


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request with its prompt.

    Attributes:
        prompt_ids: Random ids, none of them special.
        max_tokens: Tokens of the output.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """One cell of a table: requests and how many of them are under way together.

    Attributes:
        workload: Whose cell.
        concurrency: Requests that run at a time.
        lengths: Of each request, in the order in which they are sent.
        note: How it differs from the workload's definition, or None.
    """

    workload: WorkloadName
    concurrency: int
    lengths: tuple[Lengths, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell that was asked for and cannot be measured."""

    workload: str
    concurrency: int
    reason: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the artifact can hold.

    Attributes:
        max_seq_len: Tokens of a slot.
        batch_size: Slots.
    """

    max_seq_len: int
    batch_size: int


def plan_loads(
    names: Sequence[WorkloadName], concurrencies: Sequence[int], capacity: Capacity
) -> tuple[list[Load], list[LeftOut]]:
    """The cells to measure, in the order of the names, and those that do not fit."""
    loads, left_out = [], []
    for name in names:
        for concurrency in _concurrencies_of(name, concurrencies, capacity):
            if concurrency > capacity.batch_size:
                reason = f"more than the compiled batch_size, {capacity.batch_size}"
                left_out.append(LeftOut(name, concurrency, reason))
            else:
                loads.append(_plan_load(name, concurrency, capacity))
    return loads, left_out


def _concurrencies_of(name: WorkloadName, concurrencies: Sequence[int], capacity: Capacity) -> Sequence[int]:
    if name == "W1":
        return concurrencies
    return (1,) if name == "W2" else (min(MIXED_CONCURRENCY, capacity.batch_size),)


def _plan_load(name: WorkloadName, concurrency: int, capacity: Capacity) -> Load:
    wanted = _wanted_lengths(name, concurrency)
    lengths = fit_lengths(wanted, capacity.max_seq_len)
    notes = []
    if lengths != wanted:
        longest, fitted = max(each.total for each in wanted), max(each.total for each in lengths)
        notes.append(f"lengths scaled by {fitted / longest:.2f} to fit {capacity.max_seq_len} tokens")
    if name in ("W3", "W4") and concurrency < MIXED_CONCURRENCY:
        notes.append(f"{concurrency} instead of {MIXED_CONCURRENCY} at a time, the compiled batch_size")
    return Load(name, concurrency, lengths, "; ".join(notes) or None)


def _wanted_lengths(name: WorkloadName, concurrency: int) -> tuple[Lengths, ...]:
    if name == "W1":
        return (Lengths(*_SHORT),) * concurrency
    if name == "W2":
        return (Lengths(_LONG_PROMPT, 1),)
    return read_mixed_lengths()


@cache
def read_mixed_lengths() -> tuple[Lengths, ...]:
    """The 32 requests of W3 and W4: prompts of 50 to 510 tokens, outputs of 22 to 128."""
    rows = json.loads(files("llmpack.bench").joinpath("mixed_workload.json").read_bytes())
    return tuple(Lengths(**row) for row in rows)


def fit_lengths(wanted: tuple[Lengths, ...], max_seq_len: int) -> tuple[Lengths, ...]:
    """The lengths, all scaled by one factor when the longest request does not fit a slot.

    Args:
        wanted: At least one.
        max_seq_len: Tokens of a slot, at least 2.
    """
    longest = max(each.total for each in wanted)
    if longest <= max_seq_len:
        return wanted
    return tuple(_scale(each, max_seq_len, longest) for each in wanted)


def _scale(lengths: Lengths, numerator: int, denominator: int) -> Lengths:
    """Both rounded down, which keeps the sum within the slot, but at least 1."""
    max_tokens = max(1, lengths.max_tokens * numerator // denominator)
    prompt_len = max(1, lengths.total * numerator // denominator - max_tokens)
    return Lengths(prompt_len, max_tokens)


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where prompts come from.

    Attributes:
        usable_ids: What they are drawn from.
        seed: The same seed gives the same prompts; a word where one number is not enough.
    """

    usable_ids: tuple[int, ...]
    seed: int | str

    def draw(self, load: Load, round_index: int) -> list[PlannedRequest]:
        """The requests of a load for one round; each round has other prompts, of the same lengths."""
        chooser = random.Random(f"{self.seed} {load.workload} {load.concurrency} {round_index}")
        return [
            PlannedRequest(tuple(chooser.choices(self.usable_ids, k=each.prompt_len)), each.max_tokens)
            for each in load.lengths
        ]
