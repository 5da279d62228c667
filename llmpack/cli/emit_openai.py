"""`llmpack emit-openai`: everything around an OpenAI-compatible server of one artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmpack.cli.arguments import AbsolutePathsOption, ArtifactArgument, JsonOption
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import stderr_console
from llmpack.cli.emitted import show_bundle


def emit_openai(
    artifact: ArtifactArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="BUNDLE", help="Where nothing is yet.")],
    server: Annotated[str, typer.Option("--for", help="llmpack, vllm or vllm-rbln.")] = "llmpack",
    model_name: Annotated[
        str | None, typer.Option("--model-name", help="The name that requests say. [default: that of the source]")
    ] = None,
    engine_release: Annotated[
        str | None,
        typer.Option("--engine-release", help="Version of vLLM or vllm-rbln. [default: the latest known]"),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="What stock vLLM loads (vllm). [default: the artifact's source]")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Name of the container image. [default: after the model]")
    ] = None,
    absolute_paths: AbsolutePathsOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Write a bundle for an OpenAI-compatible server: launch script, container, services, clients, smoke test.

    llmpack serves its own artifacts, vllm the model that one was compiled from, vllm-rbln those of optimum-rbln. The
    bundle is validated before it appears.
    """
    from llmpack.bundle.openai.emit import emit_openai as write_bundle
    from llmpack.bundle.openai.options import OpenAIOptions

    options = OpenAIOptions(
        server=server,  # type: ignore[arg-type]  # judged when the plan is made
        model_name=model_name,
        engine_release=engine_release,
        model=model,
        image=image,
        has_absolute_paths=absolute_paths,
    )
    with stderr_console().status("checking and writing"):
        bundle = write_bundle(artifact, output, options)
    facts = [
        ("server", f"{bundle.server} {bundle.release}"),
        ("model", bundle.model_name),
        ("image", bundle.image),
        ("memory", f"{bundle.memory_mib} MiB"),
    ]
    show_bundle(bundle, facts, as_json=as_json)
