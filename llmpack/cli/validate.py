"""`llmpack validate`: serving configs against an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmpack.cli.arguments import JsonOption
from llmpack.cli.config_file import ConfigOption
from llmpack.cli.console import EXIT_CHECK_FAILED, EXIT_UNUSABLE, count_of, print_json, talk

if TYPE_CHECKING:
    from llmpack.validate.config_file import ProjectSettings
    from llmpack.validate.fix_rounds import FixResult
    from llmpack.validate.run import Report, ValidateOptions

FORMATS = ("table", "json", "sarif", "github")


def validate(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Configs, or directories to search for them.")
    ] = None,
    artifact: Annotated[
        Path | None, typer.Option("--artifact", metavar="DIR", help="Compare with this, not with what a config names.")
    ] = None,
    output_format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    as_json: JsonOption = False,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="RULES", help="Only these: LP101,LP12. May be given again.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="RULES", help="Not these. May be given again.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Correct the files and show what was changed.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Only show what --fix would change.")] = False,
    verify: Annotated[
        str | None,
        typer.Option("--verify", help="full hashes an llmpack artifact's files, sizes does not. [default: full]"),
    ] = None,
    vllm_release: Annotated[
        str | None,
        typer.Option("--vllm-release", help="Judge keys by this version of vLLM. [default: the latest known]"),
    ] = None,
    triton_release: Annotated[
        str | None, typer.Option("--triton-release", help="Judge tensors by this container release, such as 24.01.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Check serving configs against a compiled artifact.

    Reads model.json, config.pbtxt, Triton model repositories, command lines in scripts, Dockerfiles, compose and
    Kubernetes files, systemd units, env files and Python. Exits with 1 when something disagrees, with 2 when a file
    cannot be read, whatever was found in the others.
    """
    from llmpack.validate.config_file import find_project_settings

    project = find_project_settings(Path.cwd())
    wishes = _Wishes(
        artifact or project.artifact,
        _split(select, "--select") or project.select or (),
        _split(ignore, "--ignore") or project.ignore or (),
        verify or project.verify or "full",
    )
    options = _build_options(wishes, _releases(project, vllm_release, triton_release))
    report = _run(list(paths or ()), options, should_fix=fix, should_diff=diff)
    _show(report, "json" if as_json else output_format)
    raise typer.Exit(_exit_code(report))


@dataclass(frozen=True, slots=True)
class _Wishes:
    artifact: Path | None
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    verify: str


def _split(values: Sequence[str] | None, option: str) -> tuple[str, ...]:
    from llmpack.validate.config_file import check_rule_names

    names = tuple(name.strip().upper() for value in values or () for name in value.split(",") if name.strip())
    check_rule_names(names, option)
    return names


def _releases(project: ProjectSettings, vllm: str | None, triton: str | None) -> dict[str, str]:
    found = {"vllm": vllm or project.vllm_release, "triton": triton or project.triton_release}
    return {name: release for name, release in found.items() if release is not None}


def _build_options(wishes: _Wishes, releases: dict[str, str]) -> ValidateOptions:
    from llmpack.errors import UsageError
    from llmpack.validate.evaluate import Selection
    from llmpack.validate.run import ValidateOptions

    if wishes.verify not in {"full", "sizes"}:
        raise UsageError("unknown choice", where="--verify", given=wishes.verify, allowed="full, sizes")
    selection = Selection(wishes.select, wishes.ignore)
    return ValidateOptions(wishes.artifact, selection, "sizes" if wishes.verify == "sizes" else "full", releases)


def _run(paths: list[Path], options: ValidateOptions, *, should_fix: bool, should_diff: bool) -> Report:
    from llmpack.errors import UsageError
    from llmpack.validate.fix_rounds import fix_paths, preview_fixes
    from llmpack.validate.run import validate_paths

    if should_fix and should_diff:
        raise UsageError("--fix and --diff exclude each other")
    if not paths and options.artifact is None:
        raise UsageError("nothing to check", next_step="Name a config or a directory, or an artifact with --artifact.")
    if should_fix:
        result = fix_paths(paths, options)
        _show_fixes(result, "made: {}")
        return result.after
    if should_diff:
        result = preview_fixes(paths, options)
        _show_fixes(result, "would be made: {}; --fix makes them")
        return result.before
    return validate_paths(paths, options)


def _show_fixes(result: FixResult, sentence: str) -> None:
    typer.echo(result.diff(), nl=False, err=True)
    talk(sentence.format(f"{count_of(len(result.made), 'fix')} in {count_of(len(result.changes), 'file')}"))
    for refused in result.refused:
        talk(f"left: {refused.fix.description}: {refused.reason}")


def _show(report: Report, output_format: str) -> None:
    from llmpack.errors import UsageError

    if output_format == "json":
        from llmpack.validate.output.json_report import build_json

        print_json(build_json(report))
    elif output_format == "sarif":
        from llmpack.validate.output.sarif import build_sarif

        print_json(build_sarif(report))
    elif output_format == "github":
        from llmpack.validate.output.github import build_github

        typer.echo(build_github(report), nl=False)
    elif output_format == "table":
        from llmpack.cli.findings import print_report

        print_report(report)
    else:
        raise UsageError("unknown choice", where="--format", given=output_format, allowed=", ".join(FORMATS))


def _exit_code(report: Report) -> int:
    """Unread files win: what was not read may hold anything."""
    if report.failures:
        return EXIT_UNUSABLE
    return 0 if report.is_clean else EXIT_CHECK_FAILED
