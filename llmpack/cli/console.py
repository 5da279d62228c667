"""How the command line talks: results go to stdout, everything else to stderr, and errors become exit codes.

Exit codes: 0 done; 1 a check failed (a proof, an integrity check); 2 the input or the options cannot be used;
130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXIT_CHECK_FAILED = 1
EXIT_UNUSABLE = 2

EXIT_CODES = "Exit codes: 0 done; 1 a check failed; 2 the input or the options cannot be used; 130 interrupted."


def run_and_exit(app: Callable[[], object]) -> None:
    """Runs `app`; an llmpack error, or a file that cannot be read, becomes a message on stderr and an exit code."""
    from llmpack.errors import LlmpackError

    try:
        app()
    except LlmpackError as error:
        talk(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        talk(f"error: {error.filename}: {error.strerror}")
        sys.exit(EXIT_UNUSABLE)


def talk(message: str) -> None:
    """One message to the person, on stderr."""
    typer.echo(message, err=True)


def stderr_console() -> Console:
    """A console on stderr, for progress. It draws nothing when stderr is piped."""
    from rich.console import Console

    return Console(stderr=True, quiet=not sys.stderr.isatty())


def print_json(value: object) -> None:
    """`value` (JSON types, msgspec structs, dataclasses) as one indented JSON document on stdout."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values under a title on stdout: a table before a person, plain lines of any length in a pipe."""
    rows = list(facts)
    if sys.stdout.isatty():
        _print_table(title, rows)
        return
    width = max((len(name) for name, _ in rows), default=0)
    lines = [title, *(f"{name:<{width}}  {value}" for name, value in rows)]
    typer.echo("\n".join(lines))


def _print_table(title: str, rows: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    Console(highlight=False).print(table)


def print_grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under a title and a header on stdout: a table before a person, aligned lines of any length in a pipe."""
    if sys.stdout.isatty():
        _print_rich_grid(title, header, rows)
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows)]
    typer.echo("\n".join([title, *lines, ""]))


def _print_rich_grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table, "")


def format_bytes(num_bytes: int) -> str:
    """A size in words, in binary units: 1536 gives "1.5 KiB"."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{num_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def count_of(number: int, noun: str) -> str:
    """Such as "1 file" and "2 fixes"."""
    plural = f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
