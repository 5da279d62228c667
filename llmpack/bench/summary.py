"""From rounds to what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from llmpack.bench.report import Comparison, Measurement, StepFacts
from llmpack.bench.timing import Percentiles, Round, Spread, StepAccount
from llmpack.bench.workload import Load


def summarize(load: Load, target: str, rounds: Sequence[Round], peak_memory_bytes: int | None) -> Measurement:
    """One cell, from at least one round."""
    first = rounds[0]
    gaps_s = [gap for each in rounds for request in each.requests for gap in request.gaps_s]
    return Measurement(
        workload=load.workload,
        target=target,
        concurrency=load.concurrency,
        num_requests=len(load.lengths),
        prompt_tokens=first.num_prompt_tokens,
        output_tokens=first.num_output_tokens,
        duration_s=Spread.of([each.duration_s for each in rounds]),
        output_tokens_per_s=Spread.of([each.output_tokens_per_s for each in rounds]),
        total_tokens_per_s=Spread.of(
            [(each.num_prompt_tokens + each.num_output_tokens) / each.duration_s for each in rounds]
        ),
        prefill_tokens_per_s=_prefill_speed(load, rounds),
        ttft_s=Percentiles.of(request.ttft_s for each in rounds for request in each.requests),
        itl_s=Percentiles.of(gaps_s) if gaps_s else None,
        steps=summarize_steps([each.steps for each in rounds if each.steps is not None]),
        peak_memory_bytes=peak_memory_bytes,
        notes=_notes(load, rounds),
    )


def summarize_steps(accounts: Sequence[StepAccount]) -> StepFacts | None:
    """The steps of all rounds; None without any."""
    if not accounts:
        return None
    return StepFacts(
        num_steps=sum(each.num_steps for each in accounts),
        step_s=Spread.of([each.total_s / each.num_steps for each in accounts]),
        decode_tokens_per_s=Spread.of([each.num_tokens / each.total_s for each in accounts]),
        overhead_s=Spread.of([(each.total_s - each.runner_s) / each.num_steps for each in accounts]),
        overhead_share=Spread.of([1 - each.runner_s / each.total_s for each in accounts]),
    )


def compare(load: Load, target: str, ours: Sequence[Round], theirs: Sequence[Round]) -> Comparison:
    """Ratios of rounds that ran one after the other, so that what slows both of them drops out."""
    pairs = list(zip(ours, theirs, strict=True))
    return Comparison(
        workload=load.workload,
        concurrency=load.concurrency,
        target=target,
        throughput_ratio=Spread.of([our.output_tokens_per_s / their.output_tokens_per_s for our, their in pairs]),
        ttft_ratio=Spread.of([their.ttft_s / our.ttft_s for our, their in pairs]),
    )


def _prefill_speed(load: Load, rounds: Sequence[Round]) -> Spread | None:
    """Where requests run together, prompts wait for each other and the quotient means nothing."""
    if load.concurrency > 1 or len(load.lengths) > 1:
        return None
    return Spread.of([fmean(request.num_prompt_tokens / request.ttft_s for request in each.requests)
                      for each in rounds])  # fmt: skip


def _notes(load: Load, rounds: Sequence[Round]) -> list[str]:
    notes = [load.note] if load.note else []
    outputs = [
        (request.num_output_tokens, wanted.max_tokens)
        for each in rounds
        for request, wanted in zip(each.requests, load.lengths, strict=True)
    ]
    num_short = sum(given < wanted for given, wanted in outputs)
    if num_short:
        notes.append(f"{num_short} of {len(outputs)} outputs ended early: the server does not honour ignore_eos")
    return notes
