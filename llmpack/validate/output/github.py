"""A report as GitHub workflow commands, which annotate the lines of a pull request.

Source: GitHub documentation, "Workflow commands for GitHub Actions": `%`, CR and LF are escaped everywhere, `:` and
`,` in properties too.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.model import Finding
from llmpack.validate.run import Report

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def build_github(report: Report) -> str:
    """One command per line; empty when there is nothing to say."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield f"::{_LEVELS[finding.severity]} {_properties(finding)}::{_escape(_text(finding))}"
    for failure in report.failures:
        yield f"::error file={_escape_property(failure.path)},title=cannot be read::{_escape(failure.message)}"


def _properties(finding: Finding) -> str:
    place = finding.location
    pairs = {"file": place.path, "line": place.line, "col": place.column, "title": finding.rule_id}
    return ",".join(f"{name}={_escape_property(str(value))}" for name, value in pairs.items() if value is not None)


def _text(finding: Finding) -> str:
    pointer = f"{finding.location.pointer}: " if finding.location.pointer else ""
    return pointer + finding.message


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
