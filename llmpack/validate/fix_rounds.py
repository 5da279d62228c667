"""Fixing until nothing is left to fix: some fixes only become visible or possible once others are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmpack.validate.fix import FileChange, RefusedFix, fixes_of, plan_fixes, write_changes
from llmpack.validate.model import Fix
from llmpack.validate.run import Report, ValidateOptions, validate_paths

# Each round makes at least one fix, and no chain of fixes that depend on each other is longer.
_MAX_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class FixResult:
    """What fixing did.

    Attributes:
        report: Of the files as they are now.
        changes: From the files as they were to the files as they are, in the order of their first change.
        made: Fixes that were made.
        refused: Fixes that were not made.
    """

    report: Report
    changes: tuple[FileChange, ...]
    made: tuple[Fix, ...]
    refused: tuple[RefusedFix, ...]

    def diff(self) -> str:
        """All changes as one unified diff."""
        return "".join(change.diff() for change in self.changes)


def fix_paths(paths: Sequence[Path], options: ValidateOptions) -> FixResult:
    """Validates and corrects the files until no fix is left that can be made.

    Raises:
        ArtifactError: `options.artifact` cannot be used.
        FixError: A file cannot be written.
    """
    report = validate_paths(paths, options)
    changes: dict[Path, FileChange] = {}
    made: list[Fix] = []
    refused: tuple[RefusedFix, ...] = ()
    for _ in range(_MAX_ROUNDS):
        plan = plan_fixes(fixes_of(report.findings), paths)
        refused = plan.refused
        if not plan.changes:
            break
        write_changes(plan.changes)
        made += plan.made
        for change in plan.changes:
            first = changes.get(change.path, change)
            changes[change.path] = FileChange(change.path, first.before, change.after)
        report = validate_paths(paths, options)
    return FixResult(report, tuple(changes.values()), tuple(made), refused)
