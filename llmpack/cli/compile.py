"""`llmpack compile`: from a checkpoint to an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmpack.cli.arguments import JsonOption
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import format_bytes, print_facts, print_json

if TYPE_CHECKING:
    from llmpack.compiler.compile import PreparedCompile
    from llmpack.plan.options import CompileOptions

COMPILE_EXTRA = ("torch", "transformers", "onnx", "onnxscript", "gguf")


def compile_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, checkpoint directory or .gguf file.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the artifact will be; new.")],
    max_seq_len: Annotated[
        int | None, typer.Option("--max-seq-len", help="Tokens of a slot. [default: the model's, at most 2048]")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Slots.")] = 4,
    tensor_parallel_size: Annotated[int, typer.Option("--tensor-parallel-size", help="Ranks.")] = 1,
    engine: Annotated[str, typer.Option("--engine", help="onnxruntime, inductor or auto")] = "onnxruntime",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or auto")] = "auto",
    quantize: Annotated[str, typer.Option("--quantize", help="none")] = "none",
    prefill_buckets: Annotated[
        str | None, typer.Option("--prefill-buckets", metavar="N,N", help="Prefill lengths. [default: 32,128]")
    ] = None,
    decode_buckets: Annotated[
        str | None, typer.Option("--decode-buckets", metavar="N,N", help="Decode widths. [default: 1,BATCH_SIZE]")
    ] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Hub branch, tag or commit.")] = None,
    logits: Annotated[
        bool, typer.Option("--logits/--no-logits", help="Add the program that Triton ensembles serve.")
    ] = False,
    proof: Annotated[bool, typer.Option("--proof/--no-proof", help="Check the programs against transformers.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and write nothing.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Compile a model to an artifact.

    Every shape is fixed, and the programs are proved against transformers before the artifact appears.
    """
    from llmpack.plan.options import CompileOptions

    check_compile_extra()
    options = CompileOptions(
        model=model,
        output=output,
        revision=revision,
        max_seq_len=max_seq_len,
        batch_size=batch_size,
        tensor_parallel_size=tensor_parallel_size,
        engine=engine,
        dtype=dtype,
        quantize=quantize,
        prefill_buckets=parse_buckets("--prefill-buckets", prefill_buckets),
        decode_buckets=parse_buckets("--decode-buckets", decode_buckets),
        logits=logits,
        proof=proof,
    )
    if dry_run:
        _print_plan(options, as_json)
    else:
        _compile(options, as_json)


def check_compile_extra() -> None:
    """Passes when everything that only compiling needs is installed.

    Raises:
        UsageError: Something is not; all of it is named.
    """
    from importlib.util import find_spec

    from llmpack.errors import UsageError

    missing = [name for name in COMPILE_EXTRA if find_spec(name) is None]
    if missing:
        next_step = "Install it with: pip install 'llmpack[compile]'"
        raise UsageError(
            "compiling needs more than serving", given=f"without {', '.join(missing)}", next_step=next_step
        )


def _compile(options: CompileOptions, as_json: bool) -> None:
    from llmpack.cli.inspect import facts
    from llmpack.cli.progress import ProgressBars
    from llmpack.compiler.compile import compile_model

    with ProgressBars() as progress:
        artifact = compile_model(options, progress)
    if as_json:
        print_json({"artifact": str(artifact.path), "manifest": artifact.manifest})
    else:
        print_facts(str(artifact.path), facts(artifact.manifest))


def _print_plan(options: CompileOptions, as_json: bool) -> None:
    from llmpack.compiler.compile import prepare

    plan = describe_plan(prepare(options))
    if as_json:
        print_json(plan)
        return
    byte_sizes = {name for name in plan if name.endswith("_bytes")}
    print_facts(
        "nothing was written (--dry-run)",
        ((name, format_bytes(value) if name in byte_sizes else str(value)) for name, value in plan.items()),
    )


def describe_plan(prepared: PreparedCompile) -> dict[str, Any]:
    """What a compile would make, under the manifest's names."""
    plan = prepared.plan
    return {
        "architecture": prepared.row.model_type,
        "engine": plan.engine,
        "dtype": plan.dtype,
        "max_seq_len": plan.max_seq_len,
        "batch_size": plan.batch_size,
        "prefill_buckets": list(plan.prefill_buckets),
        "decode_buckets": list(plan.decode_buckets),
        "programs": [program.name for program in plan.programs],
        "num_parameters": prepared.weights.num_parameters,
        "weights_bytes": prepared.weights_bytes,
        "kv_cache_bytes": plan.kv_cache_bytes,
    }


def parse_buckets(option: str, text: str | None) -> tuple[int, ...] | None:
    """The numbers of "32,128"; None for None.

    Raises:
        UsageError: It is not a list of whole numbers.
    """
    from llmpack.errors import UsageError

    if text is None:
        return None
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        allowed = "whole numbers with commas between them, such as 32,128"
        raise UsageError("not a list of buckets", where=option, given=text, allowed=allowed) from error
