"""`llmpack emit-triton`: a Triton model repository with everything around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmpack.cli.arguments import AbsolutePathsOption, ArtifactArgument, JsonOption
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import stderr_console
from llmpack.cli.emitted import show_bundle


def emit_triton(
    artifact: ArtifactArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="REPO", help="Where nothing is yet.")],
    target: Annotated[
        str, typer.Option("--target", help="triton, triton-python, triton-ensemble, triton-logits or triton-vllm.")
    ] = "triton",
    model_name: Annotated[
        str | None, typer.Option("--model-name", help="The model's name in Triton. [default: that of the source]")
    ] = None,
    triton_release: Annotated[
        str | None,
        typer.Option("--triton-release", help="Container release whose contract to keep. [default: the latest known]"),
    ] = None,
    instances: Annotated[
        int,
        typer.Option(
            "--instances", help="Instances: those of triton share one engine, those of triton-python have one each."
        ),
    ] = 1,
    absolute_paths: AbsolutePathsOption = False,
    engine_release: Annotated[
        str | None,
        typer.Option("--engine-release", help="Version of vLLM or vllm-rbln (triton-vllm). [default: the container's]"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="What stock vLLM loads (triton-vllm). [default: the artifact's source]"),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Write a bundle that Triton serves: model repository, launch scripts, clients, smoke test.

    triton streams by the contract of Triton's vLLM backend, triton-python answers whole batches, triton-ensemble
    answers with logits, triton-logits too but from token ids; both need an artifact compiled with --logits.
    triton-vllm is for containers that bring vLLM or vllm-rbln. The bundle is validated before it appears.
    """
    from llmpack.bundle.emit import emit_triton as write_bundle
    from llmpack.bundle.options import EmitOptions

    options = EmitOptions(
        target=target,  # type: ignore[arg-type]  # judged when the plan is made
        model_name=model_name,
        triton_release=triton_release,
        engine_release=engine_release,
        model=model,
        num_instances=instances,
        has_absolute_paths=absolute_paths,
    )
    with stderr_console().status("checking and writing"):
        bundle = write_bundle(artifact, output, options)
    facts = [("target", bundle.target), ("model", bundle.model_name), ("triton", bundle.triton_release)]
    show_bundle(bundle, facts, as_json=as_json)
