"""How a compile tells its caller where it is."""

from __future__ import annotations

from typing import Protocol


class CompileProgress(Protocol):
    """Receives phases and their advance. Called from the compiling thread."""

    def start(self, phase: str, total: int, unit: str) -> None:
        """A phase begins.

        Args:
            phase: In words.
            total: Units of work.
            unit: `bytes`, `programs` or `cases`.
        """
        ...

    def advance(self, amount: int) -> None:
        """Work of the present phase was done."""
        ...


class Silent:
    """Progress that nobody watches."""

    def start(self, phase: str, total: int, unit: str) -> None:
        """Ignores the phase."""

    def advance(self, amount: int) -> None:
        """Ignores the work."""
