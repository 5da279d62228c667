"""`llmpack bench`: throughput and latency, alone or beside other servers."""

from __future__ import annotations

import itertools
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmpack.cli.arguments import ArtifactArgument, JsonOption
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import print_json, stderr_console

if TYPE_CHECKING:
    from llmpack.bench.bench import OtherServer
    from llmpack.bench.report import PromptFormat
    from llmpack.bench.triton_bench import TritonBenchOptions
    from llmpack.bench.workload import WorkloadName

_CONCURRENCY = "1,4,8,16"
_PROMPT_FORMAT = "ids"


def bench(
    artifact: ArtifactArgument,
    workload: Annotated[
        str | None, typer.Option("--workload", help="Of W1,W2,W3,W4. [default: all that go with the rest]")
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time in W1; at most the compiled batch_size.")
    ] = _CONCURRENCY,
    repeat: Annotated[int, typer.Option("--repeat", help="Rounds, after one that does not count.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Of the random prompts.")] = 0,
    num_threads: Annotated[
        int, typer.Option("--num-threads", min=0, help="Threads that compute. [default: one per physical core]")
    ] = 0,
    against: Annotated[
        list[str] | None, typer.Option("--against", metavar="URL", help="An OpenAI-compatible server; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="The model's name there, one for each URL. [default: its first]")
    ] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", help="Sent to those servers.")] = None,
    prompt_format: Annotated[
        str, typer.Option("--prompt-format", help="ids, or text for servers that take no token ids.")
    ] = _PROMPT_FORMAT,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw throughput and latency of W1.")
    ] = None,
    triton: Annotated[
        Path | None,
        typer.Option(
            "--triton", metavar="CHECKPOINT", help="Measure behind Triton, beside this model in transformers."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Of each output with --triton; fewer take less time. [default: 128]"),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Measure an artifact: throughput, latency, time per step, memory.

    W1: 32 tokens in, 128 out. W2: time to the first token of 1024. W3: 32 mixed requests on 8 slots.
    W4: those over HTTP, streamed, on a server that is started for it. What does not fit the artifact is
    scaled or left out, and said.

    --triton CHECKPOINT serves the artifact and the checkpoint it was compiled from on real Triton servers: transformers
    one by one, dynamic batching, continuous batching; 1 and 2 instances; 1 and 8 requests; what Triton adds to a
    request. The program is $TRITONSERVER or tritonserver.
    """
    _stop_servers_on_sigterm()
    if triton is not None:
        from llmpack.bench.triton_bench import TritonBenchOptions

        _refuse(
            "means nothing beside --triton",
            workload=workload,
            against=against,
            model=model,
            plot=plot,
            api_key=api_key,
            num_threads=num_threads,
            concurrency=concurrency if concurrency != _CONCURRENCY else None,
            prompt_format=prompt_format if prompt_format != _PROMPT_FORMAT else None,
        )
        length = {} if max_tokens is None else {"max_tokens": max_tokens}
        _bench_triton(artifact, TritonBenchOptions(triton, repeat, seed, **length), as_json=as_json)
        return
    _refuse("means nothing without --triton", max_tokens=max_tokens)
    _refuse("means nothing without --against", api_key=None if against else api_key)
    from llmpack.bench.bench import BenchOptions, run_bench
    from llmpack.bench.plot import check_plot, draw
    from llmpack.cli.bench_tables import show_report

    options = BenchOptions(
        workloads=None if workload is None else _parse_workloads(workload),
        concurrencies=_parse_counts("--concurrency", concurrency),
        repeat=repeat,
        seed=seed,
        num_threads=num_threads,
        against=_pair_servers(against or [], model or []),
        prompt_format=_parse_format(prompt_format),
        headers=(("Authorization", f"Bearer {api_key}"),) if api_key else (),
    )
    if plot is not None:
        check_plot(plot, options.workloads)
    with stderr_console().status("starting") as status:
        report = run_bench(artifact, options, status.update)
    if as_json:
        print_json(report)
    else:
        show_report(report)
    if plot is not None:
        draw(report, plot)


def _refuse(reason: str, **options: object) -> None:
    """Raises UsageError when one of the options was given."""
    from llmpack.errors import UsageError

    for name, value in options.items():
        if value:
            shown = "a key" if name == "api_key" else value
            raise UsageError(reason, where=f"--{name.replace('_', '-')}", given=shown)


def _stop_servers_on_sigterm() -> None:
    """Makes SIGTERM end the command like an error does, so that the servers it started end too."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def _bench_triton(artifact: Path, options: TritonBenchOptions, *, as_json: bool) -> None:
    from llmpack.bench.triton_bench import run_triton_bench
    from llmpack.cli.bench_triton_tables import show_triton_report

    with stderr_console().status("starting") as status:
        report = run_triton_bench(artifact, options, status.update)
    if as_json:
        print_json(report)
    else:
        show_triton_report(report)


def _parse_workloads(text: str) -> tuple[WorkloadName, ...]:
    from llmpack.bench.workload import WORKLOADS
    from llmpack.errors import UsageError

    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in WORKLOADS:
            raise UsageError("unknown workload", where="--workload", given=name, allowed=", ".join(WORKLOADS))
    return tuple(name for name in WORKLOADS if name in names)


def _parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Ascending numbers, each once; their range is judged with the other options."""
    from llmpack.errors import UsageError

    try:
        return tuple(sorted({int(item) for item in text.split(",")}))
    except ValueError as error:
        raise UsageError("not a list of numbers", where=option, given=text, allowed="such as 1,4,8") from error


def _pair_servers(urls: list[str], models: list[str]) -> tuple[OtherServer, ...]:
    from llmpack.bench.bench import OtherServer
    from llmpack.errors import UsageError

    if models and len(models) != len(urls):
        allowed = f"none, or {len(urls)}: one for each --against"
        raise UsageError("as many names as servers are needed", where="--model", given=len(models), allowed=allowed)
    names = models or itertools.repeat(None)
    return tuple(OtherServer(url, name) for url, name in zip(urls, names, strict=False))


def _parse_format(text: str) -> PromptFormat:
    from typing import get_args

    from llmpack.bench.report import PromptFormat
    from llmpack.errors import UsageError

    for choice in get_args(PromptFormat):
        if text == choice:
            return choice  # type: ignore[no-any-return]
    raise UsageError("unknown choice", where="--prompt-format", given=text, allowed=", ".join(get_args(PromptFormat)))
