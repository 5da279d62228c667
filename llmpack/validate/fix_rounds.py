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
    """What fixing does.

    Attributes:
        before: The report of the files as they were.
        after: The report of the files as the changes leave them.
        changes: From the files as they were to the files as the last round leaves them, in the order of paths.
        made: Fixes in the changes.
        refused: Fixes that cannot be made.
    """

    before: Report
    after: Report
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
    result = preview_fixes(paths, options)
    write_changes(result.changes)
    return result


def preview_fixes(paths: Sequence[Path], options: ValidateOptions) -> FixResult:
    """Exactly what `fix_paths` would do; nothing is written.

    Raises:
        ArtifactError: `options.artifact` cannot be used.
    """
    report = before = validate_paths(paths, options)
    changes: dict[Path, FileChange] = {}
    drafts: dict[Path, bytes] = {}
    made: list[Fix] = []
    refused: tuple[RefusedFix, ...] = ()
    for _ in range(_MAX_ROUNDS):
        plan = plan_fixes(fixes_of(report.findings), paths, drafts)
        refused = plan.refused
        if not plan.changes:
            break
        made += plan.made
        for change in plan.changes:
            first = changes.get(change.path, change)
            changes[change.path] = FileChange(change.path, first.before, change.after)
            drafts[change.path] = change.after
        report = validate_paths(paths, options, drafts)
    kept = tuple(changes[path] for path in sorted(changes) if changes[path].before != changes[path].after)
    return FixResult(before, report, kept, tuple(made), refused)
