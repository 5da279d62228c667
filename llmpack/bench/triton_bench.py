"""`llmpack bench --triton`: one model behind Triton in three ways, and what Triton itself costs.

    table 1   the same requests at once on 1 and on 2 instances
    table 2   1 request, and as many at once as a batch holds
    latency   the target triton beside `llmpack serve`, streamed, one client and many

All servers run for the whole time, and every round goes through all of them, so that a slow minute slows all alike.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from llmpack.artifact.reader import open_artifact
from llmpack.bench.bench import describe_artifact
from llmpack.bench.http_load import HttpLoad, HttpRequest, OpenAICompletions, find_model
from llmpack.bench.machine import read_machine
from llmpack.bench.prompt_text import find_usable_ids
from llmpack.bench.report import Omission
from llmpack.bench.server_process import serve_artifact
from llmpack.bench.targets import to_http
from llmpack.bench.timing import Percentiles, Round, Spread
from llmpack.bench.transformers_bundle import check_checkpoint
from llmpack.bench.triton_deployments import CONTINUOUS, DEPLOYMENTS, Deployment, Models, deployed
from llmpack.bench.triton_process import check_triton
from llmpack.bench.triton_report import (
    TRITON_REPORT_VERSION,
    TritonCell,
    TritonLatency,
    TritonReport,
    TritonSettings,
)
from llmpack.bench.workload import Lengths, Load, PromptSource, fit_lengths
from llmpack.errors import UsageError
from llmpack.runtime.tokenizer import Tokenizer

BATCH = 8

_LENGTHS = Lengths(32, 128)
_PAUSE_S = 0.2  # the threads of the server that ran last spin on for a moment


@dataclass(frozen=True, slots=True)
class TritonBenchOptions:
    """What to measure and how.

    Attributes:
        checkpoint: For transformers: the directory that the artifact was compiled from.
        repeat: Rounds that count, at least 1.
        seed: Of the prompts.
        max_tokens: Of each output at most; less where it does not fit the artifact.
    """

    checkpoint: Path
    repeat: int = 3
    seed: int = 0
    max_tokens: int = _LENGTHS.max_tokens


@dataclass(slots=True)
class _Run:
    """What is served, and what was measured so far.

    Attributes:
        batch: Requests at once in the cells of a whole batch.
        requests: Gives those of a round and a use; no two uses share prompts, which a server could have kept.
        loads: Runs loads on what is deployed.
        serve: Runs loads on `llmpack serve`.
        cells: Rounds of each deployment and number of requests.
        pairs: For each concurrency, rounds of `llmpack serve` and of Triton.
    """

    batch: int
    requests: Callable[[int, str], list[HttpRequest]]
    loads: Mapping[Deployment, HttpLoad]
    serve: HttpLoad
    cells: dict[tuple[Deployment, int], list[Round]] = field(default_factory=dict)
    pairs: dict[int, list[tuple[Round, Round]]] = field(default_factory=dict)


def run_triton_bench(
    directory: Path, options: TritonBenchOptions, on_cell: Callable[[str], None] = lambda _: None
) -> TritonReport:
    """Measures an artifact and its checkpoint behind Triton.

    Args:
        directory: The artifact; every file of it is hashed first.
        options: What and how.
        on_cell: Told in words what is measured next.

    Raises:
        ArtifactError: The artifact cannot be used.
        UsageError: There is no Triton server, or the checkpoint is not the artifact's.
        BenchError: A server does not start or answer.
    """
    if options.repeat < 1:
        raise UsageError("nothing would be measured", where="--repeat", given=options.repeat, allowed="1 or more")
    check_triton()
    artifact = open_artifact(directory)
    manifest = artifact.manifest
    check_checkpoint(options.checkpoint, manifest)
    batch = min(BATCH, manifest.batch_size)
    lengths = fit_lengths((Lengths(_LENGTHS.prompt_len, options.max_tokens),), manifest.max_seq_len)[0]
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    left_out: list[Omission] = []
    with ExitStack() as stack:
        loads = _deploy_all(stack, Models(artifact, options.checkpoint, batch), left_out, on_cell)
        serve = _serve(stack, artifact.path)
        run = _Run(batch, _build_requests(artifact.path, lengths, batch, options.seed), loads, serve)
        for index in range(-1, options.repeat):
            on_cell("warm-up" if index < 0 else f"round {index + 1} of {options.repeat}")
            _run_round(run, index, is_kept=index >= 0)
    return TritonReport(
        report_version=TRITON_REPORT_VERSION,
        started_at=started_at,
        artifact=describe_artifact(directory, manifest),
        machine=read_machine(0, manifest.engine),
        settings=TritonSettings(
            checkpoint=str(options.checkpoint),
            repeat=options.repeat,
            seed=options.seed,
            prompt_len=lengths.prompt_len,
            max_tokens=lengths.max_tokens,
        ),
        cells=[_summarize_cell(*key, rounds) for key, rounds in run.cells.items()],
        latencies=[summarize_latency(concurrency, pairs) for concurrency, pairs in run.pairs.items()],
        left_out=left_out,
    )


def _deploy_all(
    stack: ExitStack, models: Models, left_out: list[Omission], on_cell: Callable[[str], None]
) -> dict[Deployment, HttpLoad]:
    """What runs loads on each deployment that there can be; the reason of each other one is noted."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmpack-bench-")))
    loads = {}
    for number, deployment in enumerate(DEPLOYMENTS):
        name = f"{deployment.system}, {deployment.engine}, {deployment.num_instances} instance(s)"
        on_cell(f"starting {name}")
        try:
            loads[deployment] = stack.enter_context(deployed(deployment, models, folder / str(number)))
        except UsageError as error:
            if deployment.num_instances == 1:
                raise
            left_out.append(Omission(workload=name, concurrency=models.rows, reason=error.what))
    return loads


def _serve(stack: ExitStack, artifact: Path) -> HttpLoad:
    origin = stack.enter_context(serve_artifact(artifact)).origin
    return HttpLoad(origin, OpenAICompletions(find_model(origin, {})), {})


def _build_requests(artifact: Path, lengths: Lengths, batch: int, seed: int) -> Callable[[int, str], list[HttpRequest]]:
    """Gives the requests of a round and a use, as texts: no model behind Triton takes ids."""
    tokenizer = Tokenizer.from_directory(artifact)
    usable_ids = find_usable_ids(tokenizer, tokenizer.vocab_size)
    load = Load("W1", batch, (lengths,) * batch)

    def build(index: int, use: str) -> list[HttpRequest]:
        source = PromptSource(usable_ids, f"{seed} {use}")
        return [to_http(request, tokenizer) for request in source.draw(load, index)]

    return build


def _run_round(run: _Run, index: int, *, is_kept: bool) -> None:
    """Every cell once, forwards in one round and backwards in the next, so that none always follows the same one."""
    jobs = [
        partial(_run_cell, run, (deployment, count), index, is_kept=is_kept)
        for deployment in run.loads
        for count in _counts(deployment, run.batch)
    ]
    jobs += [partial(_run_pair, run, count, index, is_kept=is_kept) for count in sorted({1, run.batch})]
    for job in jobs[:: -1 if index % 2 else 1]:
        job()


def _counts(deployment: Deployment, batch: int) -> Sequence[int]:
    """Requests at once: the second instance, and what does not batch, are for table 1 alone."""
    has_both = deployment.num_instances == 1 and deployment.system != "sequential"
    return sorted({1, batch}) if has_both else (batch,)


def _run_cell(run: _Run, key: tuple[Deployment, int], index: int, *, is_kept: bool) -> None:
    deployment, count = key
    time.sleep(_PAUSE_S)
    measured = run.loads[deployment].run(run.requests(index, f"cell {count}")[:count], count)
    if is_kept:
        run.cells.setdefault(key, []).append(measured)


def _run_pair(run: _Run, count: int, index: int, *, is_kept: bool) -> None:
    """`llmpack serve` and Triton one after the other, in another order each round."""
    requests = run.requests(index, f"pair {count}")[:count]
    rounds = {}
    loads = [("serve", run.serve), ("triton", run.loads[CONTINUOUS])]
    for name, load in loads[:: -1 if index % 2 else 1]:
        time.sleep(_PAUSE_S)
        rounds[name] = load.run(requests, count)
    if is_kept:
        run.pairs.setdefault(count, []).append((rounds["serve"], rounds["triton"]))


def _summarize_cell(deployment: Deployment, num_requests: int, rounds: Sequence[Round]) -> TritonCell:
    return TritonCell(
        system=deployment.system,
        engine=deployment.engine,
        num_instances=deployment.num_instances,
        num_requests=num_requests,
        execution_s=Spread.of([each.duration_s for each in rounds]),
        tokens_per_s=Spread.of([each.output_tokens_per_s for each in rounds]),
    )


def summarize_latency(concurrency: int, pairs: Sequence[tuple[Round, Round]]) -> TritonLatency:
    """What Triton adds, from rounds of `llmpack serve` and of Triton that followed each other."""
    serve = [request for ours, _ in pairs for request in ours.requests]
    triton = [request for _, theirs in pairs for request in theirs.requests]
    return TritonLatency(
        concurrency=concurrency,
        serve_ttft_s=Percentiles.of(each.ttft_s for each in serve),
        triton_ttft_s=Percentiles.of(each.ttft_s for each in triton),
        serve_total_s=Percentiles.of(each.total_s for each in serve),
        triton_total_s=Percentiles.of(each.total_s for each in triton),
        added_ttft_s=Spread.of([theirs.ttft_s - ours.ttft_s for ours, theirs in pairs]),
        added_total_s=Spread.of([theirs.total_s - ours.total_s for ours, theirs in pairs]),
    )
