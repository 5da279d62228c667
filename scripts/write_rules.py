"""Writes `docs/rules.md` from the catalogue: `python scripts/write_rules.py`."""

from __future__ import annotations

from pathlib import Path

from llmpack.validate.output.rules_page import build_rules_page

Path("docs/rules.md").write_text(build_rules_page(), encoding="utf-8")
