"""How the commands that write bundles tell what they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llmpack.cli.console import print_facts, print_json


class Emitted(Protocol):
    """What every bundle has."""

    @property
    def path(self) -> str:
        """Where it lies."""

    @property
    def files(self) -> tuple[str, ...]:
        """What is in it, without the artifact's files."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Findings that do not stand against it."""


def show_bundle(bundle: Emitted, facts: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    """Prints the bundle: as JSON, or its facts, files and notes and the command that starts it."""
    if as_json:
        print_json(bundle)
        return
    rows = [*facts, *(("file", path) for path in bundle.files), *(("note", note) for note in bundle.notes)]
    print_facts(bundle.path, [*rows, ("next", f"{bundle.path}/serve.sh")])
