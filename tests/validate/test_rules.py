"""Every rule passes what it should pass and finds what it should find, in its own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llmpack.validate.evaluate import NotChecked, Selection, evaluate_artifact, evaluate_config
from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import Finding
from llmpack.validate.output.rules_page import build_rules_page
from llmpack.validate.rules.catalogue import RULES, RULES_BY_ID
from llmpack.validate.rules.rule import Context
from tests.validate.rule_cases import CASES, FIXED, Case, command

ROWS = [pytest.param(rule_id, case, id=f"{rule_id}: {case.name}") for rule_id, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("rule_id", "case"), ROWS)
def test_case(rule_id: str, case: Case) -> None:
    selection = Selection(select=(rule_id,))
    if isinstance(case.config, ArtifactFacts):
        outcomes = list(evaluate_artifact(case.config, selection))
    else:
        context = replace(case.context, facts=case.facts, same_file=(case.config,))
        outcomes = list(evaluate_config(case.config, context, selection))
    findings = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
    unknown = [outcome for outcome in outcomes if isinstance(outcome, NotChecked)]
    assert (len(findings), len(unknown)) == (case.findings, case.unknown), outcomes
    text = " ".join([finding.message for finding in findings] + [item.reason for item in unknown])
    assert case.says in text
    assert all(finding.rule_id == rule_id for finding in findings)


def test_every_rule_has_a_passing_and_a_failing_case() -> None:
    assert set(CASES) == set(RULES_BY_ID)
    for rule_id, cases in CASES.items():
        assert any(case.findings == 0 and case.unknown == 0 for case in cases), rule_id
        assert any(case.findings for case in cases), rule_id


def test_every_rule_that_needs_facts_says_so_when_they_are_unknown() -> None:
    for rule in RULES:
        if rule.needs and rule.id not in {"LP104", "LP102", "LP121"}:
            assert any(case.unknown for case in CASES[rule.id]), rule.id


def test_needs_are_facts() -> None:
    for rule in RULES:
        assert all(hasattr(FIXED, name) for name in rule.needs)


def test_rules_are_documented_in_order() -> None:
    assert [rule.id for rule in RULES] == sorted(RULES_BY_ID)
    for rule in RULES:
        assert rule.check or rule.check_artifact
        assert len(rule.story.splitlines()) >= 2
        assert max(map(len, rule.story.splitlines())) <= 120


def test_the_page_of_rules_is_up_to_date() -> None:
    """`python scripts/write_rules.py` writes it."""
    page = Path(__file__).parents[2] / "docs" / "rules.md"
    assert page.read_text(encoding="utf-8") == build_rules_page()


def test_no_report_repeats_a_secret() -> None:
    token = "hf_" + "s" * 30
    config = command(
        "vllm",
        ("model", token),
        ("hf_token", "sesame"),
        ("hf_token", "open"),
        ("max_num_seqs", token),
        ("dtype", token),
    )
    outcomes = list(evaluate_config(config, Context(FIXED), Selection()))
    assert {outcome.rule_id for outcome in outcomes} >= {"LP106", "LP109", "LP110", "LP111", "LP141"}
    assert not [word for word in (token, "sesame", "'open'") if word in repr(outcomes)]
