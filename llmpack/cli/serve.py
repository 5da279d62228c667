"""`llmpack serve`: an OpenAI-compatible server for one artifact."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmpack.cli.arguments import ArtifactArgument
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import talk
from llmpack.server.options import API_KEY_VARIABLE, ServerOptions

if TYPE_CHECKING:
    from llmpack.artifact.reader import Artifact
    from llmpack.runtime.async_engine import AsyncEngine
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
    max_queue: Annotated[int, typer.Option("--max-queue", min=0, help="Waiting sequences before 503.")] = 256,
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
    limits = EngineLimits(max_model_len, max_num_seqs, max_queue)
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
    opened = _open(artifact, limits)
    engine = _load_engine(opened, limits)
    model = _describe_model(opened, served_model_name or [], limits, use_defaults)

    from llmpack.server import run

    raise typer.Exit(run.serve(engine, model, options, on_ready=_announce))


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much of what was compiled is used; None for all of it.

    Attributes:
        max_model_len: Tokens of a request, prompt and output together.
        max_num_seqs: Running sequences.
        max_queue: Waiting sequences.
    """

    max_model_len: int | None
    max_num_seqs: int | None
    max_queue: int


def _open(path: Path, limits: EngineLimits) -> Artifact:
    from llmpack.artifact.reader import open_artifact

    opened = open_artifact(path)
    _check_at_most("--max-num-seqs", limits.max_num_seqs, opened.manifest.batch_size, "batch_size")
    _check_at_most("--max-model-len", limits.max_model_len, opened.manifest.max_seq_len, "max_seq_len")
    return opened


def _load_engine(opened: Artifact, limits: EngineLimits) -> AsyncEngine:
    from llmpack.runtime.async_engine import AsyncEngine
    from llmpack.runtime.engine import EngineOptions
    from llmpack.runtime.load import load_engine

    options = EngineOptions(max_waiting=limits.max_queue, max_running=limits.max_num_seqs)
    return AsyncEngine(load_engine(opened, options))


def _describe_model(opened: Artifact, names: list[str], limits: EngineLimits, use_defaults: bool) -> ServedModel:
    from llmpack.server.served_model import ServedModel

    model = ServedModel.from_artifact(opened.path, opened.manifest, names, use_generation_config=use_defaults)
    if limits.max_model_len is None:
        return model
    return replace(model, limits=replace(model.limits, max_seq_len=limits.max_model_len))


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _announce(url: str) -> None:
    typer.echo(url)
    talk("ready")


def _check_at_most(option: str, value: int | None, compiled: int, name: str) -> None:
    from llmpack.errors import UsageError

    if value is not None and not 1 <= value <= compiled:
        raise UsageError(
            "a server can be started with less than was compiled, not with more",
            where=option,
            given=value,
            allowed=f"1 to {compiled}, the compiled {name}",
            next_step="Choose a smaller number, or compile again with a larger one.",
        )


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
