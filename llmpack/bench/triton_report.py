"""What `llmpack bench --triton --json` prints."""

from __future__ import annotations

from msgspec import Struct

from llmpack.bench.report import ArtifactFacts, MachineFacts, Omission
from llmpack.bench.timing import Percentiles, Spread

TRITON_REPORT_VERSION = 1


class _Fact(Struct, frozen=True, kw_only=True):
    """Base of the report's structs."""


class TritonSettings(_Fact, frozen=True):
    """How it was measured.

    Attributes:
        checkpoint: What transformers ran.
        repeat: Rounds of each cell, after one that does not count.
        seed: Of the prompts.
        prompt_len: Tokens of each prompt at most: prompts are texts.
        max_tokens: Tokens of each output.
    """

    checkpoint: str
    repeat: int
    seed: int
    prompt_len: int
    max_tokens: int


class TritonCell(_Fact, frozen=True):
    """Some requests, sent at once, on one deployment.

    Attributes:
        system: `sequential`: transformers, one generation per request; `dynamic`: the target triton-python, or
            transformers with the same dynamic batching; `continuous`: the target triton.
        engine: `transformers` or `llmpack`.
        num_instances: Of the model.
        num_requests: Sent at once.
        execution_s: From the first request sent to the last complete.
        tokens_per_s: Output tokens of all requests over that time.
    """

    system: str
    engine: str
    num_instances: int
    num_requests: int
    execution_s: Spread
    tokens_per_s: Spread


class TritonLatency(_Fact, frozen=True):
    """What Triton adds over `llmpack serve`: the same artifact and prompts, streamed, in turns.

    Attributes:
        concurrency: Clients.
        serve_ttft_s: Time to the first output of `llmpack serve`, all rounds.
        triton_ttft_s: The same of Triton.
        serve_total_s: Time to the end of `llmpack serve`, all rounds.
        triton_total_s: The same of Triton.
        added_ttft_s: Triton's median less that of `llmpack serve` in the same round.
        added_total_s: The same for the time to the end.
    """

    concurrency: int
    serve_ttft_s: Percentiles
    triton_ttft_s: Percentiles
    serve_total_s: Percentiles
    triton_total_s: Percentiles
    added_ttft_s: Spread
    added_total_s: Spread


class TritonReport(_Fact, frozen=True):
    """All of one run.

    Attributes:
        report_version: Of this format.
        started_at: UTC, ISO 8601.
        artifact: What was measured.
        machine: Where.
        settings: How.
        cells: Of both tables; a cell that both have is there once.
        latencies: One for each concurrency.
        left_out: What was not measured, and why.
    """

    report_version: int
    started_at: str
    artifact: ArtifactFacts
    machine: MachineFacts
    settings: TritonSettings
    cells: list[TritonCell]
    latencies: list[TritonLatency]
    left_out: list[Omission]
