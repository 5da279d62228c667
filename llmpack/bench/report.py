"""What `llmpack bench --json` prints; the published JSON Schema is made from these types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from llmpack.bench.timing import Percentiles, Spread

REPORT_VERSION = 1

PromptFormat = Literal["ids", "text"]


class _Fact(Struct, frozen=True, kw_only=True):
    """Base of the report's structs."""


class ArtifactFacts(_Fact, frozen=True):
    """What was measured.

    Attributes:
        path: Its directory, as it was given.
        build_id: The manifest's.
        model: What it was compiled from.
        engine: What runs its programs.
        dtype: Of weights and activations.
        quantization: Of the weights.
        num_parameters: Of the model.
        max_seq_len: Tokens of a slot.
        batch_size: Slots.
        prefill_buckets: Compiled prompt lengths.
        decode_buckets: Compiled decode widths.
    """

    path: str
    build_id: str
    model: str
    engine: str
    dtype: str
    quantization: str
    num_parameters: int
    max_seq_len: int
    batch_size: int
    prefill_buckets: list[int]
    decode_buckets: list[int]


class MachineFacts(_Fact, frozen=True):
    """Where it was measured.

    Attributes:
        cpu: The processor's name.
        num_cpus: Logical processors that this process may use.
        num_threads: Threads of the engine; 0 for one per physical core.
        memory_bytes: Of the machine; None where the system does not say.
        system: Kernel and architecture.
        versions: Of Python and of the packages that have a part in the speed.
    """

    cpu: str
    num_cpus: int
    num_threads: int
    memory_bytes: int | None
    system: str
    versions: dict[str, str]


class Settings(_Fact, frozen=True):
    """How it was measured.

    Attributes:
        repeat: Rounds of each cell, after one that does not count.
        seed: Of the prompts.
        prompt_format: What is sent over HTTP.
    """

    repeat: int
    seed: int
    prompt_format: PromptFormat


class StepFacts(_Fact, frozen=True):
    """Steps that decoded a full batch and did nothing else.

    Attributes:
        num_steps: In all rounds.
        step_s: Seconds of a step, the mean of each round.
        decode_tokens_per_s: Tokens of those steps over their time.
        overhead_s: Seconds of a step outside the runner's prefill and decode, the mean of each round.
        overhead_share: overhead_s over step_s, in [0, 1].
    """

    num_steps: int
    step_s: Spread
    decode_tokens_per_s: Spread
    overhead_s: Spread
    overhead_share: Spread


class Measurement(_Fact, frozen=True):
    """One cell: a load on a target.

    Attributes:
        workload: W1 to W4.
        target: `engine`, `llmpack serve` or a URL.
        concurrency: Requests under way together.
        num_requests: Of one round.
        prompt_tokens: Of one round.
        output_tokens: Of one round.
        duration_s: From the first request sent to the last complete.
        output_tokens_per_s: Output tokens over the duration.
        total_tokens_per_s: Prompt and output tokens over the duration.
        prefill_tokens_per_s: Prompt tokens over the time to the first token, where one request runs alone.
        ttft_s: Time from sending a request to its first output, all rounds.
        itl_s: Times between one output and the next, all rounds; None where there is but one output.
        steps: Of the engine, where it runs in the measuring process.
        peak_memory_bytes: Largest resident size while the load ran (an engine) or so far (a server of ours).
        notes: How it differs from the workload's definition.
    """

    workload: str
    target: str
    concurrency: int
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    duration_s: Spread
    output_tokens_per_s: Spread
    total_tokens_per_s: Spread
    prefill_tokens_per_s: Spread | None
    ttft_s: Percentiles
    itl_s: Percentiles | None
    steps: StepFacts | None
    peak_memory_bytes: int | None
    notes: list[str]


class Comparison(_Fact, frozen=True):
    """The artifact beside another server, round by round: a ratio above 1 says that the artifact is better.

    Attributes:
        workload: W1, W2 or W4.
        concurrency: Requests under way together.
        target: The other server.
        throughput_ratio: Output tokens per second, the artifact's over the other's of the same round.
        ttft_ratio: Median time to the first output, the other's over the artifact's of the same round.
    """

    workload: str
    concurrency: int
    target: str
    throughput_ratio: Spread
    ttft_ratio: Spread


class Omission(_Fact, frozen=True):
    """A cell that was asked for and not measured, and why."""

    workload: str
    concurrency: int
    reason: str


class BenchReport(_Fact, frozen=True):
    """All of one run.

    Attributes:
        report_version: Of this format.
        started_at: UTC, ISO 8601.
        artifact: What was measured.
        machine: Where.
        settings: How.
        measurements: In the order in which they were made.
        comparisons: With `--against`, one for each cell and server.
        left_out: What was asked for and not measured.
    """

    report_version: int
    started_at: str
    artifact: ArtifactFacts
    machine: MachineFacts
    settings: Settings
    measurements: list[Measurement]
    comparisons: list[Comparison]
    left_out: list[Omission]


def find_measurement(
    measurements: Sequence[Measurement], workload: str, target: str, concurrency: int
) -> Measurement | None:
    """The cell, if it was measured."""
    wanted = (workload, target, concurrency)
    found = (each for each in measurements if (each.workload, each.target, each.concurrency) == wanted)
    return next(found, None)
