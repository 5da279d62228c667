"""`--config FILE.toml`: every option of a command may stand in a file instead.

    [compile]                     one table per command
    model = "path/or/hub-id"      arguments and options by their long names, with underscores
    prefill_buckets = [32, 128]

The command line wins over the file, the file over the defaults. Paths are taken from where the command runs, as on
the command line. All tables are checked, also those of other commands.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Makes the file's values the defaults of the running command; the callback of `--config`.

    Raises:
        UsageError: The file cannot be read, or holds a key or a value that no command takes.
    """
    if path is not None:
        defaults = read_config(path, context.find_root().command.commands)  # type: ignore[attr-defined]
        context.default_map = defaults.get(context.info_name or "", {})
    return path


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE.toml", callback=apply_config, is_eager=True, help="Take options from a file."
    ),
]


def read_config(path: Path, commands: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Defaults per command name and parameter name, in the form that click takes them.

    Args:
        path: The TOML file.
        commands: The application's commands by name.

    Raises:
        UsageError: The file cannot be read, or holds a key or a value that no command takes.
    """
    import tomllib

    from llmpack.errors import UsageError

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the config cannot be read ({error.strerror})", where=str(path)) from error
    except ValueError as error:
        raise UsageError(f"the config is not valid TOML ({error})", where=str(path)) from error
    defaults = {}
    for name, table in tables.items():
        _check_key(name, commands, f"{path}")
        if not isinstance(table, dict):
            raise UsageError("a command's options form a table", where=f"{path} {name}", given=table)
        defaults[name] = _read_table(table, commands[name], f"{path} [{name}]")
    return defaults


def _read_table(table: dict[str, Any], command: Any, where: str) -> dict[str, Any]:
    params = {_key(param): param for param in command.params if param.name not in ("config", "help")}
    values = {}
    for key, value in table.items():
        _check_key(key, params, where)
        values[params[key].name] = _to_click(value, params[key], f"{where} {key}")
    return values


def _key(param: Any) -> str:
    """The key of a parameter: its long option without dashes, or the argument's name."""
    longest: str = max(param.opts, key=len)
    return longest.lstrip("-").replace("-", "_")


def _to_click(value: Any, param: Any, where: str) -> Any:
    """Numbers go in as text, so that click refuses 4.5 where it needs an integer instead of cutting it."""
    from llmpack.errors import UsageError

    is_flag = bool(getattr(param, "is_flag", False))
    if is_flag != isinstance(value, bool):
        raise UsageError("wrong type", where=where, given=value, allowed="true or false" if is_flag else "a value")
    if isinstance(value, dict):
        raise UsageError("an option is a value, not a table", where=where)
    if is_flag:
        return value
    items = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    takes_many = getattr(param, "multiple", False) or param.nargs == -1
    return items if takes_many else ",".join(items)


def _check_key(key: str, known: dict[str, Any], where: str) -> None:
    from llmpack.errors import UsageError

    if key not in known:
        nearest = get_close_matches(key, known, n=1)
        hint = f"Nearest: {nearest[0]}." if nearest else None
        raise UsageError("unknown key", where=where, given=key, allowed=", ".join(sorted(known)), next_step=hint)
