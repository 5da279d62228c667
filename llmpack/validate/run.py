"""Validation from paths, from keyword arguments and at server start: read, look up, judge, report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmpack.artifact.integrity import Verify
from llmpack.artifact.manifest import Manifest
from llmpack.errors import ValidationFailed
from llmpack.validate.artifacts.llmpack import facts_of
from llmpack.validate.evaluate import NotChecked, Selection, evaluate_artifact, evaluate_config
from llmpack.validate.model import Finding, JsonValue, ReadFailure, ServingConfig, Target
from llmpack.validate.paths import ArtifactReader, find_own_artifact, look_up_paths
from llmpack.validate.readers.python_kwargs import read_kwargs
from llmpack.validate.readers.read import read_paths
from llmpack.validate.rules.rule import Context


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one validation found.

    Attributes:
        findings: In the order of files and rules.
        not_checked: What could not be judged.
        failures: Files that could not be read.
        num_configs: Configs that were judged.
    """

    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    failures: tuple[ReadFailure, ...] = ()
    num_configs: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing but notes was found."""
        return all(finding.severity == "note" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    """How to validate.

    Attributes:
        artifact: What configs are compared with; None takes the one that each config names.
        selection: Rules to run.
        verify: Whether an llmpack artifact's files are hashed ("full") or only measured ("sizes").
        releases: Versions of servers, by `vllm`, `vllm-rbln` or `triton`.
    """

    artifact: Path | None = None
    selection: Selection = field(default_factory=Selection)
    verify: Verify = "full"
    releases: Mapping[str, str] = field(default_factory=dict)


def validate_paths(
    paths: Sequence[Path], options: ValidateOptions | None = None, drafts: Mapping[Path, bytes] | None = None
) -> Report:
    """All findings in the configs at and below `paths`, and in the artifacts that they are compared with.

    Args:
        paths: Files and directories.
        options: How to validate.
        drafts: What files would hold after a fix, by real path; judged in the place of what they hold.

    Raises:
        ArtifactError: `options.artifact` is no artifact, or its facts cannot be read.
    """
    options = options or ValidateOptions()
    read = read_paths(paths, drafts)
    report = validate_configs(read.configs, options)
    return Report(report.findings, report.not_checked, read.failures, report.num_configs)


def validate_configs(configs: Sequence[ServingConfig], options: ValidateOptions) -> Report:
    """All findings in configs that have been read.

    Raises:
        ArtifactError: `options.artifact` is no artifact, or its facts cannot be read.
    """
    reader = ArtifactReader(options.verify)
    given = None if options.artifact is None else reader.read(options.artifact)
    artifacts = {} if given is None else {given.path: given}
    by_file = _group_by_file(configs)
    outcomes: list[Finding | NotChecked] = []
    for config in configs:
        paths = look_up_paths(config, given, reader)
        facts = given or find_own_artifact(config, paths, reader)
        if facts is not None:
            artifacts.setdefault(facts.path, facts)
        context = Context(facts, paths, by_file[config.path or ""], options.releases)
        outcomes += evaluate_config(config, context, options.selection)
    for facts in artifacts.values():
        outcomes += evaluate_artifact(facts, options.selection)
    return _report(outcomes, len(configs))


def _group_by_file(configs: Iterable[ServingConfig]) -> Mapping[str, tuple[ServingConfig, ...]]:
    groups: dict[str, list[ServingConfig]] = defaultdict(list)
    for config in configs:
        groups[config.path or ""].append(config)
    return {path: tuple(group) for path, group in groups.items()}


def _report(outcomes: Iterable[Finding | NotChecked], num_configs: int) -> Report:
    findings: dict[tuple[object, ...], Finding] = {}
    not_checked: dict[NotChecked, None] = {}
    for outcome in outcomes:
        if isinstance(outcome, Finding):
            findings.setdefault((outcome.rule_id, outcome.location, outcome.message), outcome)
        else:
            not_checked[outcome] = None
    return Report(tuple(findings.values()), tuple(not_checked), (), num_configs)


def validate_settings(
    settings: Mapping[str, JsonValue], artifact: Path, target: Target = "llmpack", selection: Selection | None = None
) -> Report:
    """All findings in keyword arguments of an engine, such as those of `AsyncEngineArgs`.

    Raises:
        ArtifactError: `artifact` is no artifact, or its facts cannot be read.
    """
    options = ValidateOptions(artifact, selection or Selection(), "sizes")
    return validate_configs([replace(read_kwargs(settings), target=target)], options)


def check_serving(manifest: Manifest, settings: Mapping[str, JsonValue]) -> tuple[Finding, ...]:
    """What `llmpack serve` must refuse: findings in the settings of a server for an opened llmpack artifact.

    Args:
        manifest: Of the artifact, whose files have been checked.
        settings: By canonical name (`max_num_seqs`); None values count as not given.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    config = replace(read_kwargs(given), target="llmpack")
    outcomes = evaluate_config(config, Context(facts_of(manifest)), Selection(ignore=("LP105", "LP106")))
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Finding) and outcome.severity != "note")


def require_serving(manifest: Manifest, settings: Mapping[str, JsonValue]) -> None:
    """Passes when a server may be started with `settings`.

    Raises:
        ValidationFailed: It may not; all findings are named.
    """
    findings = check_serving(manifest, settings)
    if findings:
        raise ValidationFailed(
            "the settings do not go with the artifact: " + "; ".join(describe_finding(f) for f in findings),
            next_step="Correct them, or start with --adopt to take the compiled values.",
        )


def describe_finding(finding: Finding) -> str:
    """One line: rule, place, message and value."""
    given = "" if finding.given is None else f" (given: {finding.given!r})"
    return f"{finding.rule_id} {finding.location.pointer or finding.location.path or ''}: {finding.message}{given}"


def adopt_compiled(manifest: Manifest, settings: Mapping[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    """The settings with compiled values in the place of wrong ones, and a sentence for each that was replaced.

    Raises:
        ValidationFailed: A finding has no compiled value that could be taken.
    """
    adopted = dict(settings)
    sentences = []
    for finding in check_serving(manifest, settings):
        name = finding.location.pointer
        if name not in adopted or finding.compiled is None or isinstance(finding.compiled, list):
            raise ValidationFailed("cannot be adopted: " + describe_finding(finding))
        sentences.append(f"{name}: {finding.given!r} replaced by the compiled {finding.compiled!r}")
        adopted[name] = finding.compiled
    return adopted, sentences
