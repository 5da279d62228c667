"""A validation's report for a person: a table per file on a terminal, one line per finding in a pipe."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from llmpack.cli.console import count_of, talk

if TYPE_CHECKING:
    from llmpack.validate.evaluate import NotChecked
    from llmpack.validate.model import Finding, JsonValue, Location
    from llmpack.validate.run import Report

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def print_report(report: Report) -> None:
    """Findings on stdout; what could not be read or judged, and the sum, on stderr."""
    if sys.stdout.isatty():
        _print_tables(report)
    else:
        for finding in report.findings:
            typer.echo(_line(finding))
    for failure in report.failures:
        talk(f"error: {failure.path}: {failure.message}")
    for line in _not_checked_lines(report):
        talk(line)
    talk(_sum(report))


def _line(finding: Finding) -> str:
    fixable = " [fixable]" if finding.fix is not None else ""
    values = "".join(f"; {word}" for word in _values(finding))
    return f"{_place(finding.location)}: {finding.rule_id} {finding.severity}: {finding.message}{values}{fixable}"


def _place(location: Location) -> str:
    parts = [location.path or "(arguments)", location.line, location.column]
    place = ":".join(str(part) for part in parts if part is not None)
    return f"{place} {location.pointer}" if location.pointer else place


def _values(finding: Finding) -> Iterator[str]:
    if finding.given is not None:
        yield f"given {_spell(finding.given)}"
    if finding.compiled is not None:
        yield f"wanted {finding.relation if len(finding.relation) < 3 else ''} {_spell(finding.compiled)}".replace(
            "  ", " "
        )


def _spell(value: JsonValue) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def _print_tables(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    by_path: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_path[finding.location.path or "(arguments)"].append(finding)
    console = Console(highlight=False)
    for path, findings in by_path.items():
        table = Table(title=Text(path, style="bold"), title_justify="left", box=None, pad_edge=False)
        for name in ("line", "rule", "where", "given", "wanted", "what"):
            table.add_column(name, overflow="fold", justify="right" if name == "line" else "left", header_style="dim")
        for finding in findings:
            table.add_row(*(Text(cell, style=style) for cell, style in _cells(finding)))
        console.print(table)
        console.print()


def _cells(finding: Finding) -> Iterator[tuple[str, str]]:
    place = finding.location
    yield str(place.line or ""), ""
    yield finding.rule_id, _STYLES[finding.severity]
    yield place.pointer, ""
    yield "" if finding.given is None else _spell(finding.given), ""
    yield "" if finding.compiled is None else _spell(finding.compiled), ""
    yield finding.message + (" (--fix)" if finding.fix is not None else ""), ""


def _not_checked_lines(report: Report) -> Iterator[str]:
    """One line per file and reason, whatever the number of rules."""
    groups: dict[tuple[str, str], list[NotChecked]] = defaultdict(list)
    for item in report.not_checked:
        groups[item.location.path or "(arguments)", item.reason].append(item)
    for (path, reason), items in groups.items():
        yield f"not checked: {path}: {', '.join(sorted({item.rule_id for item in items}))}: {reason}"


def _sum(report: Report) -> str:
    severities: Counter[str] = Counter(finding.severity for finding in report.findings)
    counts = [count_of(severities[name], name) for name in _STYLES if severities[name]]
    fixable = sum(finding.fix is not None for finding in report.findings)
    found = ", ".join(counts) or "no findings"
    fix = f", {fixable} of them fixable" if fixable else ""
    return f"{count_of(report.num_configs, 'config')}: {found}{fix}"
