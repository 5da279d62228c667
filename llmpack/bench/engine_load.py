"""Runs a load on an engine in this process, and tells the runner's time from Python's.

step:  |-- schedule --|==== runner.decode ====|-- sample, assemble --|
       `------------- overhead = step - runner ----------------------'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmpack.bench.timing import RequestTimes, Round, StepAccount
from llmpack.bench.workload import PlannedRequest
from llmpack.errors import BenchError
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.request import GenerationRequest, Logits, Sampling, SequenceOutput
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, PrefixCopy, Runner, RunnerShape
from llmpack.runtime.tokenizer import Tokenizer

Clock = Callable[[], float]


class TimedRunner:
    """A runner that adds up the time spent in it.

    Args:
        runner: Does the work.
        clock: Seconds that only go forward.

    Attributes:
        spent_s: Time in the runner so far.
        num_prefills: Chunks so far.
    """

    def __init__(self, runner: Runner, clock: Clock = time.perf_counter) -> None:
        self._runner = runner
        self._clock = clock
        self.spent_s = 0.0
        self.num_prefills = 0

    @property
    def shape(self) -> RunnerShape:
        """The compiled shapes."""
        return self._runner.shape

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """See `Runner.copy_prefix`."""
        start_s = self._clock()
        self._runner.copy_prefix(copy)
        self.spent_s += self._clock() - start_s

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        """See `Runner.prefill`."""
        start_s = self._clock()
        result = self._runner.prefill(chunk)
        self.spent_s += self._clock() - start_s
        self.num_prefills += 1
        return result

    def decode(self, batch: DecodeBatch) -> Logits:
        """See `Runner.decode`."""
        start_s = self._clock()
        logits = self._runner.decode(batch)
        self.spent_s += self._clock() - start_s
        return logits


@dataclass(slots=True)
class _Progress:
    """When the tokens of one request came."""

    request: PlannedRequest
    sent_s: float
    arrivals_s: list[float] = field(default_factory=list)

    def finish(self) -> RequestTimes:
        """What was seen, once the request is complete."""
        return RequestTimes(
            sent_s=self.sent_s,
            arrivals_s=tuple(self.arrivals_s),
            ended_s=self.arrivals_s[-1],
            num_prompt_tokens=len(self.request.prompt_ids),
            num_output_tokens=len(self.arrivals_s),
        )


class EngineLoad:
    """Runs loads on one runner; each run has a new engine, thus empty slots and no kept prefixes.

    Args:
        runner: Timed.
        tokenizer: For the text of the outputs, which is part of the work.
        clock: The runner's.
    """

    def __init__(self, runner: TimedRunner, tokenizer: Tokenizer, clock: Clock = time.perf_counter) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._clock = clock

    def run(self, requests: Sequence[PlannedRequest], concurrency: int) -> Round:
        """Sends all requests at once and steps until the last is complete.

        Raises:
            BenchError: A request failed.
        """
        options = EngineOptions(max_waiting=len(requests), max_running=concurrency)
        engine = Engine(self._runner, self._tokenizer, options)
        sent_s = self._clock()
        engine.add_all([_to_engine(request, index) for index, request in enumerate(requests)])
        progress = {str(index): _Progress(request, sent_s) for index, request in enumerate(requests)}
        steps = self._step_until_done(engine, progress, concurrency)
        return Round(tuple(each.finish() for each in progress.values()), steps)

    def _step_until_done(self, engine: Engine, progress: dict[str, _Progress], concurrency: int) -> StepAccount | None:
        num_steps, total_s, runner_s = 0, 0.0, 0.0
        while engine.has_work:
            num_prefills, spent_s, start_s = self._runner.num_prefills, self._runner.spent_s, self._clock()
            outputs = engine.step()
            end_s = self._clock()
            _note_tokens(outputs, progress, end_s)
            if len(outputs) == concurrency and self._runner.num_prefills == num_prefills:
                num_steps += 1
                total_s += end_s - start_s
                runner_s += self._runner.spent_s - spent_s
        return StepAccount(num_steps, num_steps * concurrency, total_s, runner_s) if num_steps else None


def _to_engine(request: PlannedRequest, index: int) -> GenerationRequest:
    """Greedy, and without end tokens."""
    return GenerationRequest(str(index), request.prompt_ids, Sampling(temperature=0.0), request.max_tokens)


def _note_tokens(outputs: Sequence[SequenceOutput], progress: dict[str, _Progress], now_s: float) -> None:
    """Each output of a step stands for one token, whether its text is held back or not."""
    for output in outputs:
        if output.finish_reason == "abort":
            raise BenchError("a request of the load failed", given=output.error)
        progress[output.request_id].arrivals_s.append(now_s)
