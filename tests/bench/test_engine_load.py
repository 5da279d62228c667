"""The engine's time and Python's, told apart on a clock that only moves when it is told to."""

from __future__ import annotations

import pytest

from llmpack.bench.engine_load import EngineLoad, TimedRunner
from llmpack.bench.workload import PlannedRequest
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, RunnerShape
from tests.runtime.letters import letter_tokenizer
from tests.runtime.shapes import VOCAB_SIZE

SHAPE = RunnerShape(4, 32, VOCAB_SIZE, (4, 8), (1, 2, 4))
DECODE_S, PREFILL_S, READ_S = 3.0, 7.0, 0.25


class Clock:
    """Each look at it takes a moment, as Python's bookkeeping does."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += READ_S
        return self.now_s


class SlowRunner(PaperRunner):
    """Takes so many seconds of the clock for each call."""

    clock: Clock

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        self.clock.now_s += PREFILL_S
        return super().prefill(chunk)

    def decode(self, batch: DecodeBatch) -> Logits:
        self.clock.now_s += DECODE_S
        return super().decode(batch)


@pytest.fixture
def load() -> EngineLoad:
    clock, runner = Clock(), SlowRunner(SHAPE)
    runner.clock = clock
    return EngineLoad(TimedRunner(runner, clock), letter_tokenizer(), clock)


def test_every_token_is_seen(load: EngineLoad) -> None:
    requests = [PlannedRequest((1, 2, 3), 5), PlannedRequest((4,) * 10, 3), PlannedRequest((5, 6), 1)]
    measured = load.run(requests, concurrency=2)
    assert [len(each.arrivals_s) for each in measured.requests] == [5, 3, 1]
    assert [each.num_output_tokens for each in measured.requests] == [5, 3, 1]
    assert measured.num_prompt_tokens == 15
    assert all(each.arrivals_s == tuple(sorted(each.arrivals_s)) for each in measured.requests)


def test_steps_are_those_that_decode_a_full_batch_alone(load: EngineLoad) -> None:
    measured = load.run([PlannedRequest((1, 2, 3), 6), PlannedRequest((4, 5, 6), 6)], concurrency=2)
    steps = measured.steps
    assert steps is not None
    assert steps.num_tokens == 2 * steps.num_steps
    assert steps.num_steps >= 4
    # Two looks at the clock belong to the runner's wrapper, of which one falls into the time that it takes.
    assert steps.runner_s == pytest.approx(steps.num_steps * (DECODE_S + READ_S))
    assert steps.total_s == pytest.approx(steps.num_steps * (DECODE_S + 3 * READ_S), rel=0.2)
    assert steps.total_s > steps.runner_s


def test_one_token_has_no_decode_steps(load: EngineLoad) -> None:
    measured = load.run([PlannedRequest((1, 2, 3, 4, 5, 6, 7), 1)], concurrency=1)
    assert measured.steps is None
    assert measured.requests[0].ttft_s >= PREFILL_S
