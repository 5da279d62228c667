"""`llmpack serve`: an OpenAI-compatible server for one artifact."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmpack.cli.arguments import ArtifactArgument
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import talk
from llmpack.server.options import API_KEY_VARIABLE, ServerOptions

if TYPE_CHECKING:
    from llmpack.artifact.reader import Artifact
    from llmpack.runtime.async_engine import AsyncEngine
    from llmpack.runtime.engine import EngineOptions
    from llmpack.server.served_model import ServedModel


def serve(
    artifact: ArtifactArgument,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8000,
    api_key: Annotated[
        list[str] | None, typer.Option("--api-key", envvar=API_KEY_VARIABLE, help="May be given again.")
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option("--served-model-name", help="May be given again. [default: the source's name]")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", help="At most the compiled max_seq_len, the default.")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option("--max-num-seqs", help="At most the compiled batch_size, the default.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option("--max-num-batched-tokens", help="Checked: at least the largest prefill bucket.")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option("--block-size", help="Checked: the compiled max_seq_len, a slot's block.")
    ] = None,
    tensor_parallel_size: Annotated[
        int | None, typer.Option("--tensor-parallel-size", help="Checked: the compiled ranks.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Checked: the compiled dtype.")] = None,
    quantization: Annotated[
        str | None, typer.Option("--quantization", help="Checked: the compiled quantisation.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="Checked: what the artifact was compiled for.")] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Replace values that do not go with the artifact, saying so, and start.")
    ] = False,
    num_threads: Annotated[
        int, typer.Option("--num-threads", min=0, help="Threads that compute. [default: one per physical core]")
    ] = 0,
    max_queue: Annotated[int, typer.Option("--max-queue", min=0, help="Waiting sequences before 503.")] = 256,
    enable_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            help="Do not compute again what a slot already holds of a prompt.",
        ),
    ] = True,
    shutdown_timeout: Annotated[
        float, typer.Option("--shutdown-timeout", min=0, help="Seconds that running requests get after SIGTERM.")
    ] = 30.0,
    allowed_origins: Annotated[
        list[str] | None, typer.Option("--allowed-origins", help="CORS origin or a JSON list; * allows all.")
    ] = None,
    generation_config: Annotated[
        str, typer.Option("--generation-config", help="auto: the model's sampling defaults; vllm: OpenAI's.")
    ] = "auto",
    config: ConfigOption = None,
) -> None:
    """Serve an artifact. Prints the address on stdout once requests are answered. SIGTERM drains and stops."""
    settings = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": block_size,
        "tensor_parallel_size": tensor_parallel_size,
        "dtype": dtype,
        "quantization": quantization,
        "device": device,
    }
    options = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        allowed_origins=_parse_list("--allowed-origins", allowed_origins),
        shutdown_timeout_s=shutdown_timeout,
    )
    use_defaults = _parse_generation_config(generation_config)
    _log_to_stderr()
    talk(f"loading {artifact}")
    opened = _open(artifact)
    limits = _resolve_limits(opened, settings, adopt=adopt)

    from llmpack.runtime.engine import EngineOptions
    from llmpack.server import run

    engine_options = EngineOptions(max_queue, limits.max_num_seqs, reuses_prefixes=enable_prefix_caching)
    engine = _load_engine(opened, engine_options, num_threads)
    model = _describe_model(opened, served_model_name or [], limits, use_defaults)
    raise typer.Exit(run.serve(engine, model, options, on_ready=_announce))


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much of what was compiled is used.

    Attributes:
        max_model_len: Tokens of a request, prompt and output together.
        max_num_seqs: Running sequences.
    """

    max_model_len: int
    max_num_seqs: int


def _open(path: Path) -> Artifact:
    from llmpack.artifact.reader import open_artifact

    return open_artifact(path)


def _resolve_limits(opened: Artifact, settings: dict[str, Any], *, adopt: bool) -> EngineLimits:
    """The limits to serve with; settings that were not given are the compiled ones.

    Raises:
        ValidationFailed: A setting does not go with the artifact, by the rules of `llmpack validate`.
    """
    from llmpack.validate.run import adopt_compiled, require_serving

    manifest = opened.manifest
    if adopt:
        settings, replaced = adopt_compiled(manifest, settings)
        for sentence in replaced:
            talk(f"--adopt: {sentence}")
    else:
        require_serving(manifest, settings)
    return EngineLimits(
        max_model_len=settings["max_model_len"] or manifest.max_seq_len,
        max_num_seqs=settings["max_num_seqs"] or manifest.batch_size,
    )


def _load_engine(opened: Artifact, options: EngineOptions, num_threads: int) -> AsyncEngine:
    from llmpack.runtime.async_engine import AsyncEngine
    from llmpack.runtime.load import load_engine

    return AsyncEngine(load_engine(opened, options, num_threads=num_threads))


def _describe_model(opened: Artifact, names: list[str], limits: EngineLimits, use_defaults: bool) -> ServedModel:
    from llmpack.server.served_model import ServedModel

    model = ServedModel.from_artifact(opened.path, opened.manifest, names, use_generation_config=use_defaults)
    return replace(model, limits=replace(model.limits, max_seq_len=limits.max_model_len))


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of every malformed request


def _announce(url: str) -> None:
    typer.echo(url)
    talk("ready")


def _parse_generation_config(value: str) -> bool:
    from llmpack.errors import UsageError

    if value not in ("auto", "vllm"):
        raise UsageError("unknown choice", where="--generation-config", given=value, allowed="auto, vllm")
    return value == "auto"


def _parse_list(option: str, values: list[str] | None) -> tuple[str, ...]:
    """Plain values and JSON lists of them, in order.

    Raises:
        UsageError: A value looks like a JSON list and is none.
    """
    from llmpack.errors import UsageError

    items: list[str] = []
    for value in values or ():
        if not value.startswith("["):
            items.append(value)
            continue
        try:
            items += map(str, json.loads(value))
        except ValueError as error:
            raise UsageError("not a JSON list", where=option, given=value) from error
    return tuple(items)
