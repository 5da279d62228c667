"""Measures llmpack beside its peers, in turns, on the same random weights and the same prompts.

    python benchmarks/run.py [--models smollm2-135m] [--peers transformers,llama-cpp,openvino-genai] [--repeat 3]

Everything that is missing is made first, below `.bench`: environments, checkpoints, artifacts, the peers' own files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from peers import PEERS, WORK, Model, PeerTarget
from random_checkpoint import NAMES, write_checkpoint

from llmpack.artifact.reader import open_artifact
from llmpack.bench.bench import describe_artifact
from llmpack.bench.machine import read_machine
from llmpack.bench.prompt_text import find_usable_ids
from llmpack.bench.report import REPORT_VERSION, BenchReport, Omission, Settings
from llmpack.bench.rounds import RoundPlan, measure
from llmpack.bench.targets import EngineTarget, Target
from llmpack.bench.workload import Capacity, PromptSource, plan_loads
from llmpack.cli.bench_tables import show_report
from llmpack.cli.console import print_json
from llmpack.runtime.tokenizer import Tokenizer

SHAPE = ("--max-seq-len", "2048", "--batch-size", "16", "--decode-buckets", "1,4,8,16")


def prepare(name: str, compile_options: list[str]) -> tuple[Path, Path]:
    """The checkpoint and the artifact of a model, made where they are missing."""
    checkpoint = WORK / "checkpoints" / name
    if not checkpoint.exists():
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(name, checkpoint)
    artifact = WORK / "-".join([name, *(option.strip("-") for option in compile_options)])
    if not artifact.exists():
        command = [sys.executable, "-m", "llmpack", "compile", str(checkpoint), "-o", str(artifact)]
        subprocess.run([*command, *SHAPE, *compile_options], check=True, stdout=2)
    return checkpoint, artifact


def measure_model(checkpoint: Path, directory: Path, arguments: argparse.Namespace) -> BenchReport:
    """One report: the artifact's engine beside each peer."""
    artifact = open_artifact(directory)
    manifest, tokenizer = artifact.manifest, Tokenizer.from_directory(artifact.path)
    capacity = Capacity(manifest.max_seq_len, manifest.batch_size)
    loads, left_out = plan_loads(arguments.workloads, arguments.concurrency, capacity)
    prompts = PromptSource(find_usable_ids(tokenizer, manifest.vocab_size), arguments.seed)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with ExitStack() as stack:
        targets: list[Target] = [EngineTarget.of(artifact, tokenizer)]
        for peer in arguments.peers:
            command = PEERS[peer](Model(checkpoint, manifest))
            targets.append(stack.enter_context(PeerTarget(peer, command)))
        plan = RoundPlan(prompts, arguments.repeat, lambda text: print(text, file=sys.stderr))
        measurements, comparisons = measure(loads, targets, plan)
    return BenchReport(
        report_version=REPORT_VERSION,
        started_at=started_at,
        artifact=describe_artifact(directory, manifest),
        machine=read_machine(0, manifest.engine),
        settings=Settings(repeat=arguments.repeat, seed=arguments.seed, prompt_format="ids"),
        measurements=measurements,
        comparisons=comparisons,
        left_out=[Omission(workload=o.workload, concurrency=o.concurrency, reason=o.reason) for o in left_out],
    )


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--models", type=names, default=NAMES, help=f"of {','.join(NAMES)}")
    parser.add_argument("--peers", type=names, default=list(PEERS), help=f"of {','.join(PEERS)}")
    parser.add_argument("--workloads", type=names, default=["W1", "W2", "W3"])
    parser.add_argument("--concurrency", type=lambda text: [int(item) for item in text.split(",")], default=[1, 8, 16])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", type=str.split, default=[], metavar="OPTIONS", help="such as '--quantize int8'")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name, given, known in (("models", arguments.models, NAMES), ("peers", arguments.peers, list(PEERS))):
        if unknown := set(given) - set(known):
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return arguments


def main() -> None:
    """The command."""
    arguments = parse_arguments()
    for name in arguments.models:
        report = measure_model(*prepare(name, arguments.compile), arguments)
        print_json(report) if arguments.json else show_report(report)


if __name__ == "__main__":
    main()
