"""`llmpack bench`: loads on an artifact, alone or beside other servers.

    alone      W1, W2, W3 on an engine in this process, then W4 on a server of our own
    --against  W1, W2, W4 on a server of our own and on the others, in turns: A B, B A, A B ...

Each cell is run once with short outputs first, which does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llmpack.artifact.manifest import Manifest
from llmpack.artifact.reader import Artifact, open_artifact
from llmpack.bench.http_connection import Origin
from llmpack.bench.http_load import HttpLoad, OpenAICompletions, find_model
from llmpack.bench.machine import read_machine
from llmpack.bench.prompt_text import find_usable_ids
from llmpack.bench.report import (
    REPORT_VERSION,
    ArtifactFacts,
    BenchReport,
    Comparison,
    Measurement,
    Omission,
    PromptFormat,
    Settings,
)
from llmpack.bench.rounds import RoundPlan, measure
from llmpack.bench.server_process import serve_artifact
from llmpack.bench.targets import EngineTarget, ServerTarget, Target
from llmpack.bench.workload import (
    CONCURRENCIES,
    WORKLOADS,
    Capacity,
    LeftOut,
    Load,
    PromptSource,
    WorkloadName,
    plan_loads,
)
from llmpack.errors import UsageError
from llmpack.runtime.tokenizer import Tokenizer

OUR_SERVER = "llmpack serve"


@dataclass(frozen=True, slots=True)
class OtherServer:
    """A server to measure beside the artifact's own.

    Attributes:
        url: Its OpenAI base URL.
        model: The model's name there; None takes the first that it lists.
    """

    url: str
    model: str | None = None

    @property
    def name(self) -> str:
        """As the report calls it."""
        return self.url if self.model is None else f"{self.url} {self.model}"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure and how.

    Attributes:
        workloads: None for all that go with `against`.
        concurrencies: Of W1.
        repeat: Rounds that count, at least 1.
        seed: Of the prompts.
        num_threads: Of the engine; 0 for one per physical core.
        against: Servers to measure beside it.
        prompt_format: What is sent over HTTP.
        headers: Sent to the other servers, such as an API key.
    """

    workloads: tuple[WorkloadName, ...] | None = None
    concurrencies: tuple[int, ...] = CONCURRENCIES
    repeat: int = 3
    seed: int = 0
    num_threads: int = 0
    against: tuple[OtherServer, ...] = ()
    prompt_format: PromptFormat = "ids"
    headers: tuple[tuple[str, str], ...] = ()


def run_bench(directory: Path, options: BenchOptions, on_cell: Callable[[str], None] = lambda _: None) -> BenchReport:
    """Measures an artifact.

    Args:
        directory: The artifact; every file of it is hashed first.
        options: What and how.
        on_cell: Told in words what is measured next.

    Raises:
        ArtifactError: The artifact cannot be used.
        UsageError: An option cannot be used.
        BenchError: A server does not start or answer.
    """
    check_options(options)
    artifact = open_artifact(directory)
    manifest = artifact.manifest
    capacity = Capacity(manifest.max_seq_len, manifest.batch_size)
    loads, left_out = plan_loads(_choose_workloads(options), options.concurrencies, capacity)
    if options.against:
        loads, left_out = _without_engine_loads(loads, left_out)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    bench = _Bench(artifact, options, Tokenizer.from_directory(artifact.path), on_cell)
    bench.run(loads)
    return BenchReport(
        report_version=REPORT_VERSION,
        started_at=started_at,
        artifact=describe_artifact(directory, manifest),
        machine=read_machine(options.num_threads, manifest.engine),
        settings=Settings(repeat=options.repeat, seed=options.seed, prompt_format=options.prompt_format),
        measurements=bench.measurements,
        comparisons=bench.comparisons,
        left_out=[
            Omission(workload=each.workload, concurrency=each.concurrency, reason=each.reason) for each in left_out
        ],
    )


def check_options(options: BenchOptions) -> None:
    """Refuses numbers that are out of range.

    Raises:
        UsageError: One is.
    """
    if options.repeat < 1:
        raise UsageError("nothing would be measured", where="--repeat", given=options.repeat, allowed="1 or more")
    for concurrency in options.concurrencies:
        if concurrency < 1:
            raise UsageError("no client", where="--concurrency", given=concurrency, allowed="1 or more")
    names = [server.name for server in options.against]
    for server in options.against:
        Origin.parse(server.url)
        if names.count(server.name) > 1:
            raise UsageError("the same server is given twice", where="--against", given=server.name)


def _choose_workloads(options: BenchOptions) -> tuple[WorkloadName, ...]:
    if options.workloads is not None:
        return options.workloads
    return tuple(name for name in WORKLOADS if not (options.against and name == "W3"))


def _without_engine_loads(loads: list[Load], left_out: list[LeftOut]) -> tuple[list[Load], list[LeftOut]]:
    reason = "runs on the engine alone; W4 is the same load over HTTP"
    dropped = [LeftOut(load.workload, load.concurrency, reason) for load in loads if load.workload == "W3"]
    return [load for load in loads if load.workload != "W3"], left_out + dropped


def describe_artifact(directory: Path, manifest: Manifest) -> ArtifactFacts:
    """The facts that belong beside a measurement."""
    return ArtifactFacts(
        path=str(directory),
        build_id=manifest.build_id,
        model=manifest.source.model,
        engine=manifest.engine,
        dtype=manifest.dtype,
        quantization=str(manifest.quantization),
        num_parameters=manifest.num_parameters,
        max_seq_len=manifest.max_seq_len,
        batch_size=manifest.batch_size,
        prefill_buckets=manifest.prefill_buckets,
        decode_buckets=manifest.decode_buckets,
    )


class _Bench:
    """One run: what is needed for it, and what was measured so far."""

    def __init__(
        self, artifact: Artifact, options: BenchOptions, tokenizer: Tokenizer, on_cell: Callable[[str], None]
    ) -> None:
        self._artifact = artifact
        self._options = options
        self._tokenizer = tokenizer
        self._prompts = PromptSource(find_usable_ids(tokenizer, artifact.manifest.vocab_size), options.seed)
        self._on_cell = on_cell
        self.measurements: list[Measurement] = []
        self.comparisons: list[Comparison] = []

    def run(self, loads: Sequence[Load]) -> None:
        on_engine = [load for load in loads if load.workload != "W4" and not self._options.against]
        if on_engine:
            engine = EngineTarget.of(self._artifact, self._tokenizer, self._options.num_threads)
            self._measure(on_engine, [engine])
            del engine  # its memory is the server's from here on
        on_servers = [load for load in loads if load not in on_engine]
        if on_servers:
            with serve_artifact(self._artifact.path, num_threads=self._options.num_threads) as server:
                ours = self._build_target(OUR_SERVER, server.origin, server.process_id)
                self._measure(on_servers, [ours, *self._others()])

    def _others(self) -> Iterator[ServerTarget]:
        for server in self._options.against:
            yield self._build_target(server.name, Origin.parse(server.url), model=server.model)

    def _build_target(
        self, name: str, origin: Origin, process_id: int | None = None, model: str | None = None
    ) -> ServerTarget:
        headers = {} if process_id is not None else dict(self._options.headers)
        dialect = OpenAICompletions(model or find_model(origin, headers))
        tokenizer = self._tokenizer if self._options.prompt_format == "text" else None
        return ServerTarget(name, HttpLoad(origin, dialect, headers), tokenizer, process_id)

    def _measure(self, loads: Sequence[Load], targets: Sequence[Target]) -> None:
        plan = RoundPlan(self._prompts, self._options.repeat, self._on_cell)
        measurements, comparisons = measure(loads, targets, plan)
        self.measurements += measurements
        self.comparisons += comparisons
