"""LP130 to LP133: the artifact itself, and this machine as its host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from llmpack.validate.facts import ArtifactFacts, ProblemTopic
from llmpack.validate.model import Location
from llmpack.validate.rules.rule import ArtifactCheck, Discrepancy, Outcome, Unknown

_REASONS: dict[ProblemTopic, str] = {
    "runtime-range": "does not tell which runtimes may load it",
    "files": "does not list its files",
    "tokenizer": "comes without tokenizer files",
    "machine": "does not tell what machine it needs",
}


def check_topic(topic: ProblemTopic) -> ArtifactCheck:
    """A check that reports the problems of `topic`, or that nobody looked at them."""

    def check(facts: ArtifactFacts) -> Iterator[Outcome]:
        if topic not in facts.checked_topics:
            yield Unknown(Location(facts.path), f"the artifact {_REASONS[topic]}")
        for problem in facts.problems_of(topic):
            place = Location(str(PurePath(facts.path, problem.path)) if problem.path else facts.path)
            yield Discrepancy(place, problem.message, given=problem.given, compiled=problem.needed)

    return check
