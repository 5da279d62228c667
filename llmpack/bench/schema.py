"""The JSON Schema of `llmpack bench --json`, published beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmpack.artifact.schema import describe_type
from llmpack.bench import report, timing
from llmpack.bench.report import BenchReport

SCHEMA_PATH = Path(__file__).with_name("report.schema.json")


def build_schema() -> dict[str, Any]:
    """The schema (2020-12) of a report."""
    return describe_type(BenchReport, "llmpack bench report", (report, timing))
