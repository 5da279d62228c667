"""What was seen of each request, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """One request. Times are seconds of one clock that only goes forward.

    Attributes:
        sent_s: When it was sent.
        arrivals_s: When output came, in order; at least one. Over HTTP one arrival is one event with text.
        ended_s: When it was complete.
        num_prompt_tokens: Tokens of its prompt, as whoever ran it counts them.
        num_output_tokens: Tokens of its output.
    """

    sent_s: float
    arrivals_s: tuple[float, ...]
    ended_s: float
    num_prompt_tokens: int
    num_output_tokens: int

    @property
    def ttft_s(self) -> float:
        """Time to the first output."""
        return self.arrivals_s[0] - self.sent_s

    @property
    def total_s(self) -> float:
        """Time to the end."""
        return self.ended_s - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Times between one output and the next."""
        return [later - earlier for earlier, later in zip(self.arrivals_s, self.arrivals_s[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class StepAccount:
    """Steps in which a full batch was decoded and nothing else happened.

    Attributes:
        num_steps: How many.
        num_tokens: Tokens that they made.
        total_s: How long they took.
        runner_s: How much of it was spent in the runner, that is outside Python's bookkeeping and sampling.
    """

    num_steps: int
    num_tokens: int
    total_s: float
    runner_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """One run of a load.

    Attributes:
        requests: All of them.
        steps: Of the engine, where it runs in this process.
    """

    requests: tuple[RequestTimes, ...]
    steps: StepAccount | None = None

    @property
    def duration_s(self) -> float:
        """From the first request sent to the last one complete."""
        return max(each.ended_s for each in self.requests) - min(each.sent_s for each in self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(each.num_prompt_tokens for each in self.requests)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens of all requests."""
        return sum(each.num_output_tokens for each in self.requests)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens over the whole duration, prompts included in the time."""
        return self.num_output_tokens / self.duration_s

    @property
    def ttft_s(self) -> float:
        """Median time to the first output."""
        return median(each.ttft_s for each in self.requests)

    @property
    def total_s(self) -> float:
        """Median time of a request."""
        return median(each.total_s for each in self.requests)


class Spread(Struct, frozen=True, kw_only=True):
    """A number of each round, summed up.

    Attributes:
        median: The middle one.
        low: The smallest.
        high: The largest.
        noise: (high - low) / median: how much of a difference between two medians means nothing.
    """

    median: float
    low: float
    high: float
    noise: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of at least one value."""
        middle = median(values)
        low, high = min(values), max(values)
        return cls(median=middle, low=low, high=high, noise=(high - low) / middle if middle else 0.0)


class Percentiles(Struct, frozen=True, kw_only=True):
    """Latencies of all rounds together, in seconds."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of at least one value."""
        ordered = sorted(values)
        return cls(p50=percentile(ordered, 50), p90=percentile(ordered, 90), p99=percentile(ordered, 99))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie, interpolated between neighbours as numpy does by default.

    Args:
        ordered: At least one value, ascending.
        percent: In [0, 100].
    """
    position = (len(ordered) - 1) * percent / 100
    index = int(position)
    if index + 1 == len(ordered):
        return ordered[index]
    return ordered[index] + (ordered[index + 1] - ordered[index]) * (position - index)
