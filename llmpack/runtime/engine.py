"""The engine: one object that turns requests into tokens, step by step, in the caller's thread.

    add / add_all --> waiting --schedule--> slot: prefill chunks, then one token per step --> finished
                         `--------------------- abort -----------------------------------------^

Not thread-safe; `async_engine.AsyncEngine` runs one in a thread of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from llmpack.errors import RequestError, UsageError
from llmpack.runtime.admission import AdmissionRules, find_rejection_reason
from llmpack.runtime.assembler import OutputAssembler
from llmpack.runtime.metrics import EngineMetrics
from llmpack.runtime.request import GenerationRequest, Logits, SequenceOutput
from llmpack.runtime.runner import Runner, RunnerShape
from llmpack.runtime.sampler import SampledToken, Sampler, SamplerState, prompt_logprobs
from llmpack.runtime.scheduler import ScheduledDecode, ScheduledPrefill, Scheduler, StepPlan
from llmpack.runtime.sequence import SequenceState
from llmpack.runtime.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits that the user may set below what was compiled.

    Attributes:
        max_waiting: Sequences that may queue beyond those that have a slot or find one free; 0 queues nothing.
        max_running: Slots in use at most, in [1, batch_size]; None for all of them.
        reuses_prefixes: Beginnings of prompts that stand in a slot already are not computed again.
    """

    max_waiting: int = 256
    max_running: int | None = None
    reuses_prefixes: bool = True


def resolve_rules(shape: RunnerShape, options: EngineOptions) -> AdmissionRules:
    """The limits that apply to `shape`.

    Raises:
        UsageError: A limit is out of its range.
    """
    max_running = shape.batch_size if options.max_running is None else options.max_running
    if not 1 <= max_running <= shape.batch_size:
        allowed = f"1 to {shape.batch_size}, the compiled batch_size"
        raise UsageError("max_running does not fit the artifact", given=max_running, allowed=allowed)
    if options.max_waiting < 0:
        raise UsageError("max_waiting is negative", given=options.max_waiting, allowed="0 or more")
    return AdmissionRules(shape, max_running, options.max_waiting)


class Engine:
    """Runs all live sequences over one runner.

    A sequence whose logits cannot be sampled (NaN, every token masked), or whose text cannot be assembled, ends alone
    with finish_reason "abort" and the reason in `error`. An error of the runner itself is raised by `step()`, and the
    engine is of no more use.

    Args:
        runner: Owns the compiled programs and the cache.
        tokenizer: For the text of the outputs.
        options: Limits on running and waiting sequences.
        clock: Seconds that only go forward; read for metrics alone.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        options: EngineOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shape = runner.shape
        options = options or EngineOptions()
        self.rules = resolve_rules(runner.shape, options)
        self.tokenizer = tokenizer
        self.metrics = EngineMetrics(self.shape.max_seq_len)
        self.clock = clock
        self._runner = runner
        self._scheduler = Scheduler(self.shape, self.rules.max_running, reuses_prefixes=options.reuses_prefixes)
        self._sampler = Sampler(self.shape.vocab_size)
        self._live: dict[str, SequenceState] = {}
        self._reports: list[SequenceOutput] = []

    @property
    def has_work(self) -> bool:
        """Whether `step()` would do or report anything."""
        return bool(self._live or self._reports)

    @property
    def live_ids(self) -> Collection[str]:
        """Ids of waiting and running requests."""
        return self._live.keys()

    def add(self, request: GenerationRequest) -> None:
        """Queues one request; see `add_all`."""
        self.add_all([request])

    def add_all(self, requests: Sequence[GenerationRequest], *, arrived_s: float | None = None) -> None:
        """Queues all requests, or none of them.

        Args:
            requests: In the order in which they are to be admitted.
            arrived_s: When they came, on the engine's clock; now if not given.

        Raises:
            RequestError: As `AdmissionRules.check` says.
        """
        try:
            self.rules.check(requests, self._live)
        except RequestError as error:
            self.metrics.count_rejection(find_rejection_reason(error))
            raise
        arrived_s = self.clock() if arrived_s is None else arrived_s
        for request in requests:
            sequence = SequenceState(request, self.shape, arrived_s)
            self._live[request.request_id] = sequence
            self._scheduler.add(sequence)
        self._update_load()

    def abort(self, request_id: str) -> None:
        """Ends a request; its slot is free at once and the next `step()` reports its end.

        Does nothing when no live request has this id, so it may come late or twice.
        """
        sequence = self._live.get(request_id)
        if sequence is not None:
            self._retire(sequence)
            self._reports.append(_flush(sequence))
            self.metrics.count_finish("abort", sequence.request, sequence.num_output_tokens)
            self._update_load()

    def step(self) -> list[SequenceOutput]:
        """Runs one decode batch and one prefill chunk, and returns what they added to each sequence.

        Outputs of one sequence come in order. Without work the list is empty.
        """
        plan = self._scheduler.schedule()
        self._note_plan(plan)
        outputs: list[SequenceOutput] = []
        for sequences, logits in self._run(plan):
            tokens = self._sampler.sample(logits, [_state_of(sequence) for sequence in sequences])
            outputs += self._update(sequences, tokens)
        self._update_load()
        return self._take_reports() + outputs

    def _run(self, plan: StepPlan) -> Iterator[tuple[Sequence[SequenceState], Logits]]:
        """Yields the sequences that get a token and their [N, V] logits, valid until the next is asked for."""
        if plan.decode is not None:
            yield plan.decode.sequences, self._decode(plan.decode)
        if plan.prefill is not None:
            last = self._prefill(plan.prefill)
            if last is not None and plan.prefill.is_last:
                yield from self._finish_prompt(plan.prefill.sequence, last)

    def _decode(self, scheduled: ScheduledDecode) -> Logits:
        logits = self._runner.decode(scheduled.batch)
        rows = [sequence.slot - scheduled.batch.first_slot for sequence in scheduled.sequences
                if sequence.slot is not None]  # fmt: skip
        if rows == list(range(rows[0], rows[0] + len(rows))):
            return logits[rows[0] : rows[0] + len(rows)]  # neighbours: a view, no copy
        return logits[rows]

    def _prefill(self, scheduled: ScheduledPrefill) -> Logits | None:
        """Runs the chunk and returns the [V] logits after its last token, or None if the sequence had to end."""
        sequence, chunk = scheduled.sequence, scheduled.chunk
        if scheduled.copy is not None:
            self._runner.copy_prefix(scheduled.copy)
        result = self._runner.prefill(chunk)
        self._scheduler.finish_chunk(sequence)
        if result.all is not None:
            try:
                self._score_prompt(sequence, chunk.start, result.all)
            except RequestError as error:
                self._reports.append(self._fail(sequence, str(error)))
                return None
        return result.last

    def _score_prompt(self, sequence: SequenceState, start: int, logits: Logits) -> None:
        """Adds the logprobs of the prompt tokens that follow the chunk's positions, each once.

        Args:
            sequence: Whose prompt.
            start: The chunk's first position.
            logits: [T, V] of all its positions.
        """
        request = sequence.request
        num_known = len(sequence.prompt_logprobs) - 1  # a chunk that starts earlier gives some rows twice
        next_ids = request.prompt_ids[num_known + 1 : start + len(logits) + 1]
        rows = logits[num_known - start : num_known - start + len(next_ids)]
        sequence.prompt_logprobs += prompt_logprobs(rows, next_ids, request.num_prompt_logprobs or 0)

    def _finish_prompt(self, sequence: SequenceState, last: Logits) -> Iterator[tuple[Sequence[SequenceState], Logits]]:
        """Makes the sequence ready to sample, or ends it when only its prompt was to be scored."""
        request = sequence.request
        self.metrics.count_prompt(len(request.prompt_ids))
        if request.max_tokens == 0:
            output = SequenceOutput(request.request_id, finish_reason="length")
            self._reports.append(_with_prompt_facts(sequence, output))
            self._complete(sequence, output, self.clock())
            return
        try:
            sequence.sampler_state = SamplerState(request, self.shape.vocab_size)
            sequence.assembler = OutputAssembler(self.tokenizer, request)
        except Exception:  # whatever is wrong with one request must not end the others
            logger.exception("preparing the output of %s failed", request.request_id)
            self._reports.append(self._fail(sequence, "preparing the output failed"))
            return
        yield [sequence], last[None, :]

    def _update(self, sequences: Sequence[SequenceState], tokens: Sequence[SampledToken]) -> list[SequenceOutput]:
        now_s = self.clock()
        return [self._append(sequence, token, now_s) for sequence, token in zip(sequences, tokens, strict=True)]

    def _append(self, sequence: SequenceState, token: SampledToken, now_s: float) -> SequenceOutput:
        if token.error is not None:
            return self._fail(sequence, token.error, token.error_param)
        is_first = not sequence.is_decoding
        sequence.accept_token(token.token_id)
        self.metrics.count_token(sequence.times, now_s)
        assert sequence.assembler is not None
        try:
            output = sequence.assembler.append(token)
        except Exception:  # whatever is wrong with one text must not end the others
            logger.exception("assembling the text of %s failed", sequence.request_id)
            return self._fail(sequence, "assembling the text of the output failed")
        if output.finish_reason is not None:
            self._complete(sequence, output, now_s)
        return _with_prompt_facts(sequence, output) if is_first else output

    def _complete(self, sequence: SequenceState, output: SequenceOutput, now_s: float) -> None:
        assert output.finish_reason is not None
        self._retire(sequence)
        self.metrics.count_finish(output.finish_reason, sequence.request, output.num_output_tokens)
        self.metrics.observe_times(sequence.times, output.num_output_tokens, now_s)

    def _fail(self, sequence: SequenceState, reason: str, param: str | None = None) -> SequenceOutput:
        level = logging.ERROR if param is None else logging.INFO  # what a client did wrong is no news for the operator
        logger.log(level, "request %s ends early: %s", sequence.request_id, reason)
        self.metrics.count_failure()
        self._retire(sequence)
        return replace(_bare_abort(sequence), error=reason, error_param=param)

    def _retire(self, sequence: SequenceState) -> None:
        del self._live[sequence.request_id]
        self._scheduler.remove(sequence)

    def _note_plan(self, plan: StepPlan) -> None:
        if plan.num_tokens:
            self.metrics.count_step(plan.num_tokens)
        now_s = self.clock()
        for sequence in plan.admitted:
            sequence.times.admitted_s = now_s
        if plan.prefill is not None and plan.prefill.is_first:
            sequence = plan.prefill.sequence
            self.metrics.count_prefix(len(sequence.request.prompt_ids), sequence.num_reused)

    def _take_reports(self) -> list[SequenceOutput]:
        reports, self._reports = self._reports, []
        return reports

    def _update_load(self) -> None:
        self.metrics.set_load(
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            kv_cache_usage=self._scheduler.num_cached_tokens / (self.shape.batch_size * self.shape.max_seq_len),
        )


def _state_of(sequence: SequenceState) -> SamplerState:
    assert sequence.sampler_state is not None
    return sequence.sampler_state


def _flush(sequence: SequenceState) -> SequenceOutput:
    """The output that ends an aborted sequence, with the text that was still held back where there is any."""
    if sequence.assembler is None:
        return _bare_abort(sequence)
    try:
        return sequence.assembler.finish("abort")
    except Exception:  # the text of a request that is given up must not end the others
        logger.exception("flushing the text of an aborted request failed")
        return _bare_abort(sequence)


def _bare_abort(sequence: SequenceState) -> SequenceOutput:
    return SequenceOutput(sequence.request_id, finish_reason="abort", num_output_tokens=sequence.num_output_tokens)


def _with_prompt_facts(sequence: SequenceState, output: SequenceOutput) -> SequenceOutput:
    """The first output of a sequence, with what is known of its prompt."""
    is_scored = sequence.request.num_prompt_logprobs is not None
    logprobs = tuple(sequence.prompt_logprobs) if is_scored else None
    return replace(output, prompt_logprobs=logprobs, num_cached_tokens=sequence.num_reused)
