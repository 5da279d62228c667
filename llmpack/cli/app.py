"""The `llmpack` command. Commands import what they need when they run, so that help stays instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from llmpack import __version__
from llmpack.cli.bench import bench
from llmpack.cli.chat import chat
from llmpack.cli.compile import compile_command
from llmpack.cli.console import EXIT_CODES, run_and_exit
from llmpack.cli.emit_openai import emit_openai
from llmpack.cli.emit_triton import emit_triton
from llmpack.cli.explain import explain
from llmpack.cli.generate import generate
from llmpack.cli.inspect import inspect
from llmpack.cli.serve import serve
from llmpack.cli.validate import validate
from llmpack.cli.verify import verify

# Plain help and tracebacks: rich would double the time of `llmpack --help`.
app = typer.Typer(
    name="llmpack",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llmpack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Compile Hugging Face causal language models to fixed-shape artifacts, prove them and serve them."""


_COMMANDS: dict[str, Callable[..., None]] = {
    "compile": compile_command,
    "inspect": inspect,
    "verify": verify,
    "validate": validate,
    "explain": explain,
    "emit-triton": emit_triton,
    "emit-openai": emit_openai,
    "generate": generate,
    "chat": chat,
    "serve": serve,
    "bench": bench,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, epilog=EXIT_CODES)(_command)


def main() -> None:
    """Entry point of the console script."""
    run_and_exit(app)
