"""A report as a SARIF 2.1.0 log.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". Files that could not be read are
tool notifications, what was not checked are results of the kind `open`.
"""

from __future__ import annotations

from pathlib import PurePath
from urllib.parse import quote

from llmpack import __version__
from llmpack.validate.evaluate import NotChecked
from llmpack.validate.model import Edit, Finding, Fix, JsonValue, Location, ReadFailure
from llmpack.validate.rules.catalogue import RULES
from llmpack.validate.run import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_INDEXES = {rule.id: index for index, rule in enumerate(RULES)}
_Object = dict[str, JsonValue]


def build_sarif(report: Report) -> JsonValue:
    """The log, with one run."""
    rules: list[JsonValue] = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": f"{rule.title}: {rule.relation}"},
            "help": {"text": rule.story},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in RULES
    ]
    results: list[JsonValue] = [_result(finding) for finding in report.findings]
    results += [_open_result(item) for item in report.not_checked]
    run: _Object = {
        "tool": {"driver": {"name": "llmpack", "semanticVersion": __version__, "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": not report.failures,
                "toolExecutionNotifications": [_notification(failure) for failure in report.failures],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding) -> _Object:
    result: _Object = {
        "ruleId": finding.rule_id,
        "ruleIndex": _INDEXES[finding.rule_id],
        "level": finding.severity,
        "message": {"text": finding.message},
        "locations": _locations(finding.location),
        "properties": {"given": finding.given, "compiled": finding.compiled, "relation": finding.relation},
    }
    if finding.fix is not None:
        result["fixes"] = [_fix(finding.fix)]
    return result


def _open_result(item: NotChecked) -> _Object:
    return {
        "ruleId": item.rule_id,
        "ruleIndex": _INDEXES[item.rule_id],
        "kind": "open",
        "level": "none",
        "message": {"text": f"not checked: {item.reason}"},
        "locations": _locations(item.location),
    }


def _locations(location: Location) -> list[JsonValue]:
    place: _Object = {}
    if location.path is not None:
        physical: _Object = {"artifactLocation": {"uri": _uri(location.path)}}
        if location.line is not None:
            region: _Object = {"startLine": location.line}
            if location.column is not None:
                region["startColumn"] = location.column
            physical["region"] = region
        place["physicalLocation"] = physical
    if location.pointer:
        place["logicalLocations"] = [{"fullyQualifiedName": location.pointer}]
    return [place] if place else []


def _uri(path: str) -> str:
    """A relative path as a relative reference, an absolute one as a file URI."""
    posix = PurePath(path).as_posix()
    return f"file://{quote(posix)}" if posix.startswith("/") else quote(posix)


def _fix(fix: Fix) -> _Object:
    return {"description": {"text": fix.description}, "artifactChanges": [_change(edit) for edit in fix.edits]}


def _change(edit: Edit) -> _Object:
    replacement: _Object = {
        "deletedRegion": {"byteOffset": edit.start, "byteLength": edit.end - edit.start},
        "insertedContent": {"text": edit.replacement},
    }
    return {"artifactLocation": {"uri": _uri(edit.path)}, "replacements": [replacement]}


def _notification(failure: ReadFailure) -> _Object:
    return {
        "level": "error",
        "message": {"text": failure.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(failure.path)}}}],
    }
