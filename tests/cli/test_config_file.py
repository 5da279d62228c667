"""Options from a TOML file: strict, named errors, and the command line wins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from llmpack.cli.app import app
from llmpack.cli.config_file import read_config
from llmpack.errors import UsageError

CONFIGS = sorted(Path("configs").glob("*.toml"))
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read_text(text: str) -> dict[str, dict[str, Any]]:
        (tmp_path / "options.toml").write_text(text)
        return read_config(tmp_path / "options.toml", COMMANDS)

    return read_text


def test_there_are_examples() -> None:
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert read_config(path, COMMANDS)


def test_values_arrive_under_parameter_names(read: Any) -> None:
    text = '[compile]\nmodel = "m"\noutput = "o"\nprefill_buckets = [8, 16]\nproof = false\njson = true\n'
    expected = {"model": "m", "output": "o", "prefill_buckets": "8,16", "proof": False, "as_json": True}
    assert read(text) == {"compile": expected}


def test_repeatable_options_take_lists(read: Any) -> None:
    assert read('[serve]\napi_key = ["a", "b"]\nserved_model_name = "c"\n') == {
        "serve": {"api_key": ["a", "b"], "served_model_name": ["c"]}
    }


BROKEN = {
    "unknown command": ("[compil]\n", "unknown key .* given: compil; .* Nearest: compile"),
    "unknown option": ("[compile]\nbatchsize = 4\n", r"\[compile\]; given: batchsize; .* Nearest: batch_size"),
    "dashes": ("[compile]\nmax-seq-len = 4\n", "Nearest: max_seq_len"),
    "in another command's table": ("[compile]\n[serve]\nprt = 1\n", r"\[serve\]; given: prt; .* Nearest: port"),
    "no table": ("compile = 4\n", "form a table"),
    "flag with a number": ("[compile]\nproof = 1\n", "allowed: true or false"),
    "number with a flag": ("[compile]\nbatch_size = true\n", "wrong type"),
    "nested": ("[compile.batch_size]\nx = 1\n", "not a table"),
    "config in a config": ('[compile]\nconfig = "x"\n', "unknown key"),
    "not toml": ("[compile\n", "not valid TOML"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_broken_config_is_named(read: Any, way: str) -> None:
    text, expected = BROKEN[way]
    with pytest.raises(UsageError) as caught:
        read(text)
    assert re.search(expected, str(caught.value)), str(caught.value)
    assert "options.toml" in str(caught.value)


def test_missing_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "none.toml", COMMANDS)


def test_file_gives_defaults_and_the_command_line_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "options.toml"
    config.write_text(f"""[compile]
model = "tests/data/stories260K"
output = "{tmp_path / "out"}"
max_seq_len = 128
batch_size = 3
dry_run = true
json = true
""")
    app(["compile", "--config", str(config), "--batch-size", "2"], standalone_mode=False)
    plan = json.loads(capsys.readouterr().out)
    assert (plan["max_seq_len"], plan["batch_size"], plan["decode_buckets"]) == (128, 2, [1, 2])
    assert not (tmp_path / "out").exists()


def test_number_that_is_not_whole_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "options.toml"
    config.write_text('[compile]\nmodel = "m"\noutput = "o"\nbatch_size = 4.5\n')
    with pytest.raises(SystemExit) as caught:
        app(["compile", "--config", str(config)])
    assert caught.value.code == 2
    assert "Invalid value for '--batch-size'" in capsys.readouterr().err
