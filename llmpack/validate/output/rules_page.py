"""The catalogue of rules as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.rules.catalogue import RULES
from llmpack.validate.rules.rule import Rule

_HEAD = """\
# Rules of `llmpack validate`

Written by `python scripts/write_rules.py`; `llmpack explain RULE` prints the same. A rule that lacks the facts it needs
says "not checked".
"""


def build_rules_page() -> str:
    """A table of all rules, then the story of each."""
    rows = [f"| [{rule.id}](#{rule.id.lower()}) | {_cell(rule.title)} | {_cell(rule.relation)} |" for rule in RULES]
    table = "\n".join(["| rule | what must agree | how |", "|---|---|---|", *rows])
    return "\n".join([_HEAD, table, *(line for rule in RULES for line in _story(rule)), ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _story(rule: Rule) -> Iterator[str]:
    yield f"\n## {rule.id}\n"
    yield f"**{rule.title}** ({rule.severity}; {rule.relation})\n"
    yield rule.story
    if rule.needs:
        facts = ", ".join(f"`{name}`" for name in rule.needs)
        yield f"\nFacts of the artifact: {facts}."
