"""Rounds of loads on targets that take turns, so that none of them always goes first and a slow minute hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llmpack.bench.report import Comparison, Measurement
from llmpack.bench.summary import compare, summarize
from llmpack.bench.targets import Target
from llmpack.bench.timing import Round
from llmpack.bench.workload import Load, PlannedRequest, PromptSource

_WARM_UP = -1  # the round that does not count
_WARM_UP_TOKENS = 4
_PAUSE_S = 0.2  # the threads of the target that ran last spin on for a moment


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """How rounds are run.

    Attributes:
        prompts: Other ones in each round, the same for all targets.
        repeat: Rounds that count, after one with short outputs.
        on_cell: Told in words what is measured next.
    """

    prompts: PromptSource
    repeat: int
    on_cell: Callable[[str], None]


def measure(
    loads: Sequence[Load], targets: Sequence[Target], plan: RoundPlan
) -> tuple[list[Measurement], list[Comparison]]:
    """Every load on every target, and the first target beside each of the others.

    Raises:
        BenchError: A target fails.
    """
    measurements: list[Measurement] = []
    comparisons: list[Comparison] = []
    for load in loads:
        rounds = _run_rounds(load, targets, plan)
        measurements += [
            summarize(load, target.name, rounds[target.name], target.peak_memory_bytes()) for target in targets
        ]
        first, *others = targets
        comparisons += [compare(load, other.name, rounds[first.name], rounds[other.name]) for other in others]
    return measurements, comparisons


def _run_rounds(load: Load, targets: Sequence[Target], plan: RoundPlan) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {target.name: [] for target in targets}
    for index in range(_WARM_UP, plan.repeat):
        requests = plan.prompts.draw(load, index)
        for target in targets[:: -1 if index % 2 else 1]:
            if len(targets) > 1:
                time.sleep(_PAUSE_S)
            stage = "warm-up" if index == _WARM_UP else f"round {index + 1} of {plan.repeat}"
            plan.on_cell(f"{load.workload}, concurrency {load.concurrency}, {target.name}: {stage}")
            if index == _WARM_UP:
                target.run(_shorten(requests, load.concurrency), load.concurrency)
            else:
                rounds[target.name].append(target.run(requests, load.concurrency))
    return rounds


def _shorten(requests: Sequence[PlannedRequest], concurrency: int) -> list[PlannedRequest]:
    """As many requests as run together, with short outputs: every compiled shape is run once."""
    return [replace(each, max_tokens=min(each.max_tokens, _WARM_UP_TOKENS)) for each in requests[:concurrency]]
