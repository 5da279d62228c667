from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path

import pytest

from llmpack.cli import console
from llmpack.cli.compile import COMPILE_EXTRA, check_compile_extra, parse_buckets
from llmpack.errors import IntegrityError, UsageError


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5120.0 GiB")],
)
def test_bytes_in_words(num_bytes: int, expected: str) -> None:
    assert console.format_bytes(num_bytes) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such thing", given="x"), 2),
        (IntegrityError("broken", problems=["a: missing"]), 1),
        (FileNotFoundError(2, "No such file", "here"), 2),
    ],
)
def test_errors_become_messages_and_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        console.run_and_exit(fail)
    assert caught.value.code == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.out == ""


def test_own_bugs_are_not_hidden() -> None:
    def fail() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        console.run_and_exit(fail)


def test_facts_in_a_pipe_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.StringIO()
    monkeypatch.setattr("sys.stdout", stdout)
    console.print_facts("title [bold]", [("a", "x" * 500), ("longer", "[/]")])
    assert stdout.getvalue() == f"title [bold]\na       {'x' * 500}\nlonger  [/]\n"


def test_buckets() -> None:
    assert parse_buckets("--prefill-buckets", "32, 128") == (32, 128)
    assert parse_buckets("--prefill-buckets", None) is None
    for text in ("", "32,,128", "32;128", "1.5", "a"):
        with pytest.raises(UsageError, match="--prefill-buckets"):
            parse_buckets("--prefill-buckets", text)


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(UsageError, match=r"without torch. Install it with: pip install 'llmpack\[compile\]'"):
        check_compile_extra()


def test_compile_extra_is_the_one_of_the_project() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    declared = {re.match(r"\w+", requirement)[0] for requirement in project["optional-dependencies"]["compile"]}
    assert declared == set(COMPILE_EXTRA)
