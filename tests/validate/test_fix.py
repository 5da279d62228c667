"""Fixes are edits of bytes: all else stays, links lead nowhere, and a second time changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.errors import FixError
from llmpack.validate.fix import FileChange, apply_edits, fixes_of, plan_fixes, write_changes
from llmpack.validate.model import Edit, Finding, Fix, Location
from llmpack.validate.readers.read import read_paths
from tests.validate.reading import read_one, setting_of, write

COMPOSE = """# served by us
services:
  llm:   # one
    image: vllm/vllm-openai:v0.7.0
    command:
      - --max-num-seqs   # slots
      - "8"   # was 4
"""
DOCKERFILE = 'FROM a\nCMD ["vllm", "serve", "m", \\\n # é\n "--n", "8"]\n'


def fix_of(path: Path, start: int, end: int, replacement: str) -> Fix:
    return Fix("set", (Edit(str(path), start, end, replacement),))


def set_value(path: Path, name: str, text: str) -> Fix:
    span = setting_of(read_one(path), name).span
    assert span is not None
    return fix_of(path, span.start, span.end, text)


@pytest.mark.parametrize(
    ("name", "before", "setting", "after"),
    [
        ("compose.yaml", COMPOSE, "max_num_seqs", COMPOSE.replace('"8"', '"4"')),
        ("model.json", '{\n\t"b": 1,\r\n\t"n" :  8 }', "n", '{\n\t"b": 1,\r\n\t"n" :  4 }'),
        ("run.sh", "# é\nvllm serve m \\\n  --n='8' # x\n", "n", "# é\nvllm serve m \\\n  --n='4' # x\n"),
        ("run.sh", "vllm serve m --n ${N:-8}", "n", "vllm serve m --n ${N:-4}"),
        ("run.py", "LLM(n=8)  # é", "n", "LLM(n=4)  # é"),
        ("x.env", 'A=1\nexport N="8" # x\n', "n", 'A=1\nexport N="4" # x\n'),
        ("Dockerfile", DOCKERFILE, "n", DOCKERFILE.replace('"8"', '"4"')),
        ("args.yaml", "max_model_len: 8   # x\n", "max_model_len", "max_model_len: 4   # x\n"),
    ],
)  # fmt: skip
def test_only_the_value_changes(tmp_path: Path, name: str, before: str, setting: str, after: str) -> None:
    path = write(tmp_path / name, before)
    plan = plan_fixes([set_value(path, setting, "4")], [path])
    assert path.read_bytes() == before.encode()
    write_changes(plan.changes)
    assert path.read_bytes() == after.encode()


def test_diff_shows_the_change_and_nothing_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "compose.yaml", COMPOSE)
    diff = plan_fixes([set_value(path, "max_num_seqs", "4")], [tmp_path]).diff()
    assert '-      - "8"   # was 4\n+      - "4"   # was 4\n' in diff
    assert diff.startswith("--- a/")
    assert path.read_text() == COMPOSE


def test_fixing_twice_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "compose.yaml", COMPOSE)
    write_changes(plan_fixes([set_value(path, "max_num_seqs", "4")], [path]).changes)
    again = plan_fixes([set_value(path, "max_num_seqs", "4")], [path])
    assert (again.changes, again.diff()) == ((), "")


def test_several_edits_of_one_file_are_made_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "one two three")
    fixes = [fix_of(path, 8, 13, "3"), fix_of(path, 0, 3, "1111"), fix_of(path, 4, 7, "")]
    (change,) = plan_fixes(fixes, [path]).changes
    assert change.after == b"1111  3"


def test_equal_fixes_are_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "one")
    plan = plan_fixes([fix_of(path, 0, 3, "1"), fix_of(path, 0, 3, "1")], [path])
    assert (plan.changes[0].after, plan.refused) == (b"1", ())


@pytest.mark.parametrize(
    ("first", "second"), [((0, 4), (2, 6)), ((0, 8), (2, 4)), ((2, 4), (0, 8)), ((2, 2), (2, 2)), ((2, 4), (3, 3))]
)
def test_overlapping_fixes_are_refused(tmp_path: Path, first: tuple[int, int], second: tuple[int, int]) -> None:
    path = write(tmp_path / "a", "0123456789")
    plan = plan_fixes([fix_of(path, *first, "x"), fix_of(path, *second, "y")], [path])
    assert [fix.edits[0].replacement for fix in plan.made] == ["x"]
    assert "overlaps another fix" in plan.refused[0].reason


def test_a_fix_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "0123456789")
    both = Fix("both", (Edit(str(path), 5, 6, "x"), Edit(str(path), 0, 1, "y")))
    plan = plan_fixes([fix_of(path, 0, 1, "z"), both], [path])
    assert plan.changes[0].after == b"z123456789"
    assert [refused.fix for refused in plan.refused] == [both]


def test_edits_of_one_fix_may_not_overlap(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "0123456789")
    plan = plan_fixes([Fix("x", (Edit(str(path), 0, 4, ""), Edit(str(path), 2, 6, "")))], [path])
    assert (plan.changes, plan.refused[0].reason) == ((), "its edits overlap each other")


@pytest.mark.parametrize(("start", "end"), [(0, 11), (-1, 2), (5, 4)])
def test_edits_outside_the_file_are_refused(tmp_path: Path, start: int, end: int) -> None:
    path = write(tmp_path / "a", "0123456789")
    plan = plan_fixes([fix_of(path, start, end, "")], [path])
    assert plan.changes == ()
    assert "are not in" in plan.refused[0].reason


def test_the_mode_is_kept_and_nothing_is_left_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "run.sh", "vllm serve m --n 8")
    path.chmod(0o751)
    write_changes(plan_fixes([set_value(path, "n", "4")], [path]).changes)
    assert path.stat().st_mode & 0o777 == 0o751
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sh"]


def test_links_inside_stay_links(tmp_path: Path) -> None:
    path = write(tmp_path / "real.sh", "vllm serve m --n 8")
    link = tmp_path / "run.sh"
    link.symlink_to("real.sh")
    write_changes(plan_fixes([set_value(link, "n", "4")], [link]).changes)
    assert link.is_symlink()
    assert path.read_text() == "vllm serve m --n 4"


@pytest.mark.parametrize("is_given", [True, False])
def test_links_are_not_followed_out(tmp_path: Path, is_given: bool) -> None:
    outside = write(tmp_path / "outside/run.sh", "vllm serve m --n 8")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "run.sh").symlink_to(outside)
    plan = plan_fixes([set_value(inside / "run.sh", "n", "4")], [inside / "run.sh" if is_given else inside])
    assert plan.changes == ()
    assert "outside what was to be checked" in plan.refused[0].reason


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "old")
    plan = plan_fixes([fix_of(path, 0, 3, "new")], [path])
    path.write_text("edited by hand")
    with pytest.raises(FixError, match="changed while it was checked"):
        write_changes(plan.changes)
    assert path.read_text() == "edited by hand"


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FixError, match="cannot be written"):
        write_changes([FileChange(tmp_path / "gone", b"", b"x")])


def test_fixes_of_findings(tmp_path: Path) -> None:
    fix = fix_of(tmp_path, 0, 1, "x")
    findings = [Finding("LP101", "error", Location(None), 1, 2, "==", "m", item) for item in (fix, None, fix)]
    assert fixes_of(findings) == (fix,)


def test_cutting_neighbouring_entries_takes_two_rounds(tmp_path: Path) -> None:
    path = write(tmp_path / "model.json", '{"a": 1, "b": 2, "c": 3}')

    def cut() -> list[Fix]:
        spans = [item.entry_span for item in read_one(path).settings if item.name != "a"]
        return [fix_of(path, span.start, span.end, "") for span in spans if span]

    for _ in range(2):
        write_changes(plan_fixes(cut(), [path]).changes)
    assert path.read_text() == '{"a": 1}'
    assert read_paths([path]).failures == ()


@given(
    st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.text(max_size=3)), max_size=6)
)
def test_accepted_edits_keep_all_other_bytes(content: bytes, raw: list[tuple[int, int, str]]) -> None:
    edits: list[Edit] = []
    for start, length, text in sorted(raw):
        if start + length <= len(content) and all(start > edit.start and start >= edit.end for edit in edits):
            edits.append(Edit("x", start, start + length, text.encode(errors="replace").decode()))
    after = apply_edits(content, reversed(edits))
    position, expected = 0, b""
    for edit in edits:
        expected += content[position : edit.start] + edit.replacement.encode()
        position = edit.end
    assert after == expected + content[position:]
