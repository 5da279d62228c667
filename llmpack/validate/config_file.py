"""Settings of `llmpack validate` that a project keeps in a file.

    pyproject.toml                    llmpack.toml

    [tool.llmpack.validate]           [validate]
    artifact = "build/my-model"       ...
    ignore = ["LP140"]

The first of the two that holds such a table counts, from the working directory upwards. `llmpack.toml` wins over a
`pyproject.toml` beside it. Paths are taken from where the file lies.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from llmpack.errors import UsageError
from llmpack.validate.rules.catalogue import RULES

_PLACES = (("llmpack.toml", ("validate",)), ("pyproject.toml", ("tool", "llmpack", "validate")))
_TYPES: dict[str, type] = {
    "artifact": str,
    "select": list,
    "ignore": list,
    "verify": str,
    "vllm_release": str,
    "triton_release": str,
}


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What the file says; None for what it does not.

    Attributes:
        path: The file; None when there is none.
        artifact: Absolute.
        verify: `full` or `sizes`.
    """

    path: Path | None = None
    artifact: Path | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    verify: str | None = None
    vllm_release: str | None = None
    triton_release: str | None = None


def find_project_settings(start: Path) -> ProjectSettings:
    """The settings of the project that `start` belongs to; empty ones without a file.

    Raises:
        UsageError: A file is not TOML, or holds an unknown key or a value of the wrong type.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        for name, keys in _PLACES:
            file = folder / name
            table = _read_table(file, keys) if file.is_file() else None
            if table is not None:
                return _read_settings(file, table)
    return ProjectSettings()


def _read_table(file: Path, keys: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        found: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"not valid TOML ({error})", where=str(file)) from error
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _read_settings(file: Path, table: dict[str, Any]) -> ProjectSettings:
    for key, value in table.items():
        _check_entry(file, key, value)
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    if "artifact" in values:
        values["artifact"] = file.parent / values["artifact"]
    for key in ("select", "ignore"):
        check_rule_names(values.get(key, ()), f"{file} {key}")
    return ProjectSettings(path=file, **values)


def _check_entry(file: Path, key: str, value: Any) -> None:
    if key not in _TYPES:
        nearest = get_close_matches(key, _TYPES, n=1)
        hint = f"Nearest: {nearest[0]}." if nearest else None
        raise UsageError("unknown key", where=str(file), given=key, allowed=", ".join(_TYPES), next_step=hint)
    if not isinstance(value, _TYPES[key]):
        allowed = "a list of rule ids" if _TYPES[key] is list else "text"
        raise UsageError("wrong type", where=f"{file} {key}", given=value, allowed=allowed)
    if key == "verify" and value not in {"full", "sizes"}:
        raise UsageError("unknown choice", where=f"{file} verify", given=value, allowed="full, sizes")


def check_rule_names(names: tuple[str, ...], where: str) -> None:
    """Passes when each name is a rule's id or the beginning of one.

    Raises:
        UsageError: A name is neither.
    """
    for name in names:
        if not isinstance(name, str) or not name or not any(rule.id.startswith(name) for rule in RULES):
            allowed = f"{RULES[0].id} to {RULES[-1].id}, or the beginning of one"
            raise UsageError("no such rule", where=where, given=name, allowed=allowed)
