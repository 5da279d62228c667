"""`llmpack validate` and `llmpack explain` as a person and as a program would use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from llmpack.cli.app import main
from llmpack.validate.rules.catalogue import RULES
from tests.validate.foreign_artifacts import write_rbln
from tests.validate.tutorials import MODEL_JSON, write_files

HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "numpy", "tokenizers")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    artifact = write_rbln(tmp_path / "artifact")
    text = MODEL_JSON.replace("@ARTIFACT@", str(artifact))
    return write_files(
        tmp_path, {"good.json": text, "bad.json": text.replace('"max_num_seqs": 4', '"max_num_seqs": 8')}
    )


@dataclass(frozen=True)
class Run:
    returncode: object
    stdout: str
    stderr: str


def llmpack(directory: Path, *arguments: str | Path) -> Run:
    """The command as from a shell in `directory`, but in this process: starting Python is what takes the time."""
    out, err = StringIO(), StringIO()
    code: object = 0
    with chdir(directory), redirect_stdout(out), redirect_stderr(err):
        argv, sys.argv = sys.argv, ["llmpack", *map(str, arguments)]
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
        finally:
            sys.argv = argv
    return Run(code, out.getvalue(), err.getvalue())


def test_clean(root: Path) -> None:
    run = llmpack(root, "validate", "good.json", "--artifact", "artifact")
    assert (run.returncode, run.stdout) == (0, "")
    assert "1 config: no findings" in run.stderr


def test_a_finding_says_where_what_and_what_is_wanted(root: Path) -> None:
    run = llmpack(root, "validate", "bad.json", "--artifact", "artifact")
    assert run.returncode == 1
    place, message = "bad.json:4:21 /max_num_seqs", "max_num_seqs must be the compiled 4"
    assert run.stdout == f"{place}: LP101 error: {message}; given 8; wanted == 4 [fixable]\n"


def test_a_broken_file_hides_nothing(root: Path) -> None:
    (root / "broken.json").write_text('{"model": ')
    run = llmpack(root, "validate", "broken.json", "bad.json", "--artifact", "artifact")
    assert run.returncode == 2
    assert "LP101" in run.stdout
    assert "broken.json" in run.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.json"],
        [],
        ["good.json", "--artifact", "nowhere"],
        ["good.json", "--select", "XX"],
        ["good.json", "--format", "xml"],
        ["good.json", "--verify", "half"],
        ["good.json", "--fix", "--diff"],
    ],
)
def test_unusable_input(root: Path, arguments: list[str]) -> None:
    run = llmpack(root, "validate", *arguments)
    assert run.returncode == 2
    assert run.stderr
    assert "Traceback" not in run.stderr


def test_formats_for_programs(root: Path) -> None:
    as_json = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--json")
    sarif = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--format", "sarif")
    github = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--format", "github")
    assert (as_json.returncode, sarif.returncode, github.returncode) == (1, 1, 1)
    assert json.loads(as_json.stdout)["findings"][0]["rule"] == "LP101"
    assert json.loads(sarif.stdout)["runs"][0]["results"][0]["ruleId"] == "LP101"
    assert github.stdout.startswith("::error file=bad.json,line=4")


def test_select_and_ignore(root: Path) -> None:
    assert llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--ignore", "LP101").returncode == 0
    assert llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--select", "LP102,LP103").returncode == 0
    assert llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--select", "lp10").returncode == 1


@pytest.mark.parametrize(
    ("name", "header"), [("pyproject.toml", "[tool.llmpack.validate]"), ("llmpack.toml", "[validate]")]
)
def test_project_settings(root: Path, name: str, header: str) -> None:
    (root / name).write_text(f'{header}\nartifact = "artifact"\nignore = ["LP101"]\n')
    below = root / "below"
    below.mkdir()
    assert llmpack(below, "validate", "../bad.json").returncode == 0
    assert llmpack(below, "validate", "../bad.json", "--ignore", "LP102").returncode == 1


@pytest.mark.parametrize("line", ["ignor = []", "ignore = 3", 'ignore = ["LP999"]', 'verify = "half"', "= 1"])
def test_bad_project_settings_are_named(root: Path, line: str) -> None:
    (root / "llmpack.toml").write_text(f"[validate]\n{line}\n")
    run = llmpack(root, "validate", "good.json")
    assert run.returncode == 2
    assert "llmpack.toml" in run.stderr


def test_options_from_a_config_file(root: Path) -> None:
    options = 'paths = ["bad.json"]\nartifact = "artifact"\nselect = ["LP102"]\nformat = "json"\n'
    (root / "check.toml").write_text(f"[validate]\n{options}")
    run = llmpack(root, "validate", "--config", "check.toml")
    assert (run.returncode, json.loads(run.stdout)["summary"]["configs"]) == (0, 1)


def test_diff_shows_and_fix_writes(root: Path) -> None:
    before = (root / "bad.json").read_text()
    diff = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--diff")
    assert (diff.returncode, (root / "bad.json").read_text()) == (1, before)
    assert '-    "max_num_seqs": 8,' in diff.stderr
    fixed = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--fix")
    assert (fixed.returncode, fixed.stdout) == (0, "")
    assert '+    "max_num_seqs": 4,' in fixed.stderr
    assert (root / "bad.json").read_bytes() == (root / "good.json").read_bytes()
    again = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--fix")
    assert (again.returncode, "made: 0 fixes in 0 files" in again.stderr) == (0, True)


def test_diff_shows_all_rounds_of_fix(root: Path) -> None:
    """Once the key is renamed, its value is found to be wrong."""
    wrong = (root / "good.json").read_text().replace('"max_num_seqs": 4', '"max_num_seq": "8"')
    (root / "bad.json").write_text(wrong)
    diff = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--diff")
    assert (diff.returncode, "LP110" in diff.stdout, (root / "bad.json").read_text()) == (1, True, wrong)
    fixed = llmpack(root, "validate", "bad.json", "--artifact", "artifact", "--fix")
    assert (root / "bad.json").read_bytes() == (root / "good.json").read_bytes()
    assert diff.stderr.partition("would be made:")[0] == fixed.stderr.partition("made:")[0]
    assert "would be made: 2 fixes in 1 file" in diff.stderr
    assert "made: 2 fixes in 1 file" in fixed.stderr


def test_without_an_artifact_it_says_what_was_not_checked(root: Path) -> None:
    (root / "x.json").write_text('{"model": "a/b", "max_num_seqs": 4}')
    run = llmpack(root, "validate", "x.json")
    assert run.returncode == 0
    assert "not checked: x.json: LP101, LP106: no artifact is known; name it with --artifact" in run.stderr


def test_an_artifact_alone(root: Path) -> None:
    (root / "artifact" / "decoder.rbln").write_bytes(b"")
    run = llmpack(root, "validate", "--artifact", "artifact")
    assert run.returncode == 1
    assert "LP131" in run.stdout


def test_nothing_heavy_is_loaded(root: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = ['llmpack', 'validate', 'bad.json', '--artifact', 'artifact', '--json']\n"
        "from llmpack.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert run.stdout.splitlines()[-1] == "[]"


def test_explain_tells_the_story(tmp_path: Path) -> None:
    run = llmpack(tmp_path, "explain", "lp104")
    assert run.returncode == 0
    assert run.stdout.startswith("LP104: block_size")
    assert "slot cache" in run.stdout


def test_explain_lists_all_rules(tmp_path: Path) -> None:
    run = llmpack(tmp_path, "explain")
    assert all(rule.id in run.stdout and rule.title in run.stdout for rule in RULES)
    assert [item["id"] for item in json.loads(llmpack(tmp_path, "explain", "--json").stdout)] == [r.id for r in RULES]


def test_explain_of_an_unknown_rule(tmp_path: Path) -> None:
    run = llmpack(tmp_path, "explain", "LP999")
    assert run.returncode == 2
    assert "LP101 to LP141" in run.stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_table_on_a_terminal(root: Path) -> None:
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "llmpack", "validate", "bad.json", "--artifact", "artifact"]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "dumb"}
    run = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, check=False, cwd=root, env=environment)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert run.returncode == 1
    assert "bad.json" in shown
    assert "LP101" in shown
    assert "(--fix)" in shown
