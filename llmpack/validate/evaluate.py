"""Runs the rules over configs and artifacts that have been read; touches no file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import Finding, Location, ServingConfig
from llmpack.validate.rules.catalogue import RULES
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome, Rule
from llmpack.validate.rules.text import redact


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A rule that could not judge something, and why."""

    rule_id: str
    location: Location
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules run.

    Attributes:
        select: Rule ids or prefixes of them (`LP12`); empty means all.
        ignore: The same; wins over `select`.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def has(self, rule: Rule) -> bool:
        """Whether `rule` runs."""
        wanted = not self.select or rule.id.startswith(self.select)
        return wanted and not (self.ignore and rule.id.startswith(self.ignore))


def evaluate_config(config: ServingConfig, context: Context, selection: Selection) -> Iterator[Finding | NotChecked]:
    """What all selected rules say about one config, in the order of the rules."""
    for rule in RULES:
        if rule.check is not None and selection.has(rule):
            yield from _number(rule, rule.check(config, context))


def evaluate_artifact(facts: ArtifactFacts, selection: Selection) -> Iterator[Finding | NotChecked]:
    """What all selected rules say about the artifact itself."""
    for rule in RULES:
        if rule.check_artifact is not None and selection.has(rule):
            yield from _number(rule, rule.check_artifact(facts))


def _number(rule: Rule, outcomes: Iterable[Outcome]) -> Iterator[Finding | NotChecked]:
    for outcome in outcomes:
        if isinstance(outcome, Discrepancy):
            yield Finding(
                rule_id=rule.id,
                severity=outcome.severity or rule.severity,
                location=outcome.location,
                given=redact(outcome.given) if isinstance(outcome.given, str) else outcome.given,
                compiled=redact(outcome.compiled) if isinstance(outcome.compiled, str) else outcome.compiled,
                relation=outcome.relation or rule.relation,
                message=redact(outcome.message),
                fix=outcome.fix,
            )
        else:
            yield NotChecked(rule.id, outcome.location, outcome.reason)
