"""Applies the fixes of findings to files: by byte spans, so that all else stays as it was written."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmpack.errors import FixError
from llmpack.validate.model import Edit, Finding, Fix


@dataclass(frozen=True, slots=True)
class FileChange:
    """The content of one file before and after its fixes."""

    path: Path
    before: bytes
    after: bytes

    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = (content.decode(errors="replace").splitlines() for content in (self.before, self.after))
        cwd = Path.cwd()
        name = (self.path.relative_to(cwd) if cwd in self.path.parents else self.path).as_posix().lstrip("/")
        lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class RefusedFix:
    """A fix that is not made, and why."""

    fix: Fix
    reason: str


@dataclass(frozen=True, slots=True)
class FixPlan:
    """What fixing would do.

    Attributes:
        changes: One per file that changes, in the order of paths.
        made: The fixes in them.
        refused: The others. One that overlaps another may be possible once the first is made.
    """

    changes: tuple[FileChange, ...]
    made: tuple[Fix, ...]
    refused: tuple[RefusedFix, ...]

    def diff(self) -> str:
        """All changes as one unified diff, empty when there is nothing to change."""
        return "".join(change.diff() for change in self.changes)


def fixes_of(findings: Iterable[Finding]) -> tuple[Fix, ...]:
    """The fixes that the findings carry, equal ones once."""
    return tuple(dict.fromkeys(finding.fix for finding in findings if finding.fix is not None))


def plan_fixes(
    fixes: Sequence[Fix], roots: Sequence[str | Path], drafts: Mapping[Path, bytes] | None = None
) -> FixPlan:
    """The changes that the fixes make together; nothing is written.

    A fix is refused as a whole if one of its edits overlaps an accepted one, lies outside its file, or its file lies
    outside `roots` once links are followed. Accepted edits are exact: bytes outside them stay.

    Args:
        fixes: In order of preference.
        roots: The files and directories that may be changed.
        drafts: What files would hold after earlier fixes, by real path; the spans are of these.
    """
    planner = _Planner([_allowed_root(Path(root)) for root in roots], drafts or {})
    made = tuple(fix for fix in fixes if planner.accept(fix))
    return FixPlan(planner.changes(), made, tuple(planner.refused))


def write_changes(changes: Iterable[FileChange]) -> None:
    """Writes each file at once: whoever reads it sees the old or the new content. Its mode is kept.

    Raises:
        FixError: A file is not as it was when its change was planned, or cannot be written.
    """
    for change in changes:
        try:
            _write(change)
        except OSError as error:
            raise FixError(f"the file cannot be written: {error.strerror}", where=str(change.path)) from None


class _Planner:
    def __init__(self, roots: list[Path], drafts: Mapping[Path, bytes]) -> None:
        self.refused: list[RefusedFix] = []
        self._roots = roots
        self._contents: dict[Path, bytes] = dict(drafts)
        self._edits: dict[Path, list[Edit]] = {}

    def accept(self, fix: Fix) -> bool:
        """Whether all edits of the fix can be made; then they count."""
        placed = [(Path(os.path.realpath(edit.path)), edit) for edit in fix.edits]
        reasons = [reason for path, edit in placed if (reason := self._objection(path, edit))]
        if not reasons and _overlap_each_other(placed):
            reasons = ["its edits overlap each other"]
        if reasons:
            self.refused.append(RefusedFix(fix, reasons[0]))
            return False
        for path, edit in placed:
            if edit not in self._edits.setdefault(path, []):
                self._edits[path].append(edit)
        return True

    def changes(self) -> tuple[FileChange, ...]:
        """The files that the accepted edits change."""
        changes = []
        for path in sorted(self._edits):
            before = self._contents[path]
            after = apply_edits(before, self._edits[path])
            if after != before:
                changes.append(FileChange(path, before, after))
        return tuple(changes)

    def _objection(self, path: Path, edit: Edit) -> str | None:
        if not any(path == root or root in path.parents for root in self._roots):
            return f"{edit.path} leads to {path}, outside what was to be checked"
        try:
            if path not in self._contents:
                self._contents[path] = path.read_bytes()
            content = self._contents[path]
        except OSError as error:
            return f"{edit.path} cannot be read: {error.strerror}"
        if not 0 <= edit.start <= edit.end <= len(content):
            return f"bytes {edit.start} to {edit.end} are not in {edit.path}"
        others = self._edits.get(path, [])
        if any(_overlap(edit, other) for other in others if edit != other):
            return "it overlaps another fix; fix again once that one is made"
        return None


def apply_edits(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content with the edits made, which must not overlap."""
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        content = content[: edit.start] + edit.replacement.encode() + content[edit.end :]
    return content


def _allowed_root(path: Path) -> Path:
    """Where links may lead: for a directory, below it; for a file, beside it."""
    return Path(os.path.realpath(path if path.is_dir() else path.parent))


def _overlap(one: Edit, other: Edit) -> bool:
    """Whether the order of the two matters."""
    if one.start == other.start:
        return True
    first, second = sorted((one, other), key=lambda edit: edit.start)
    return second.start < first.end


def _overlap_each_other(placed: list[tuple[Path, Edit]]) -> bool:
    return any(
        path == other_path and _overlap(edit, other)
        for index, (path, edit) in enumerate(placed)
        for other_path, other in placed[:index]
    )


def _write(change: FileChange) -> None:
    status = change.path.stat()
    if change.path.read_bytes() != change.before:
        raise FixError("the file changed while it was checked", where=str(change.path), next_step="Run again.")
    handle, temporary = tempfile.mkstemp(prefix=f".{change.path.name}.", dir=change.path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(change.after)
            file.flush()
            with suppress(PermissionError):  # only root may give files away
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            os.fsync(file.fileno())
        Path(temporary).replace(change.path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
