"""A report as one JSON document."""

from __future__ import annotations

from collections import Counter

from llmpack.validate.evaluate import NotChecked
from llmpack.validate.model import Finding, JsonValue, Location
from llmpack.validate.run import Report

SCHEMA_VERSION = 1


def build_json(report: Report) -> JsonValue:
    """The document: `findings`, `not_checked`, `failures` and a `summary`."""
    severities = Counter(finding.severity for finding in report.findings)
    return {
        "schema_version": SCHEMA_VERSION,
        "findings": [_finding(finding) for finding in report.findings],
        "not_checked": [_not_checked(item) for item in report.not_checked],
        "failures": [{"path": failure.path, "message": failure.message} for failure in report.failures],
        "summary": {
            "configs": report.num_configs,
            "errors": severities["error"],
            "warnings": severities["warning"],
            "notes": severities["note"],
            "fixable": sum(finding.fix is not None for finding in report.findings),
        },
    }


def _finding(finding: Finding) -> JsonValue:
    fix: JsonValue = None
    if finding.fix is not None:
        edits: list[JsonValue] = [
            {"path": edit.path, "start": edit.start, "end": edit.end, "replacement": edit.replacement}
            for edit in finding.fix.edits
        ]
        fix = {"description": finding.fix.description, "edits": edits}
    return {
        "rule": finding.rule_id,
        "severity": finding.severity,
        **_location(finding.location),
        "given": finding.given,
        "compiled": finding.compiled,
        "relation": finding.relation,
        "message": finding.message,
        "fix": fix,
    }


def _not_checked(item: NotChecked) -> JsonValue:
    return {"rule": item.rule_id, **_location(item.location), "reason": item.reason}


def _location(location: Location) -> dict[str, JsonValue]:
    return {"path": location.path, "line": location.line, "column": location.column, "pointer": location.pointer}
