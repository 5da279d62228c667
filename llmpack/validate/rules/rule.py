"""What a rule is, what it sees and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import Fix, JsonValue, Location, ServingConfig, Severity


@dataclass(frozen=True, slots=True)
class PathState:
    """What is at a path that a config names, looked up before the rules run.

    Attributes:
        resolved: The absolute path that exists, taken from the file's directory or the working directory; None when
            there is nothing.
        is_artifact: A compiled artifact of a known kind lies there.
        is_the_artifact: It is the one that is validated against; None when there is none to compare with.
        problem: Why its facts cannot be read, or None.
    """

    resolved: str | None
    is_artifact: bool = False
    is_the_artifact: bool | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule sees beside the config itself.

    Attributes:
        facts: Of the artifact; None when none is known.
        paths: By the path as written.
        same_file: All configs that were read from the same file.
        releases: Versions of servers that the user gave, by `vllm`, `vllm-rbln` or `triton`.
    """

    facts: ArtifactFacts | None = None
    paths: Mapping[str, PathState] = field(default_factory=dict)
    same_file: tuple[ServingConfig, ...] = ()
    releases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A finding without what its rule says of itself; None stands for the rule's own word."""

    location: Location
    message: str
    given: JsonValue = None
    compiled: JsonValue = None
    relation: str | None = None
    severity: Severity | None = None
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """What the rule would need to know to judge, as the end of the sentence "not checked: ..."."""

    location: Location
    reason: str


Outcome: TypeAlias = Discrepancy | Unknown
ConfigCheck: TypeAlias = Callable[[ServingConfig, Context], Iterator[Outcome]]
ArtifactCheck: TypeAlias = Callable[[ArtifactFacts], Iterator[Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule and its documentation.

    Attributes:
        id: Stable and public.
        title: What must agree, in a few words.
        relation: How.
        severity: Unless a finding says otherwise.
        story: What goes wrong when it is broken, and what to do.
        needs: Names of the facts that it compares with.
        check: Judges one config.
        check_artifact: Judges the artifact itself; run once per artifact.
    """

    id: str
    title: str
    relation: str
    severity: Severity
    story: str
    needs: tuple[str, ...] = ()
    check: ConfigCheck | None = None
    check_artifact: ArtifactCheck | None = None
