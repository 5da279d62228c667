"""model.json: types, duplicates and places are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import JsonValue
from llmpack.validate.readers.json_text import parse_json
from llmpack.validate.readers.source_text import SourceText
from tests.validate.reading import bytes_at, failure_of, read_one, setting_of, write

TUTORIAL = """{
    "model": "meta-llama/Llama-2-7b-chat-hf",
    "device": "rbln",
    "max_num_seqs": 4,
    "compiled_model_dir": "/artifact",
    "max_num_batched_tokens": 4096
}
"""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 2, "\t"])


def test_places_of_a_setting(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "model.json", TUTORIAL))
    setting = setting_of(config, "max_num_seqs")
    assert (config.kind, config.target) == ("model.json", "vllm-rbln")
    assert (setting.value, setting.location.line, setting.location.column) == (4, 4, 21)
    assert setting.location.pointer == "/max_num_seqs"
    assert bytes_at(config, setting.span) == "4"
    assert bytes_at(config, setting.key_span) == "max_num_seqs"
    assert bytes_at(config, setting.entry_span) == '"max_num_seqs": 4,\n    '
    assert bytes_at(config, setting_of(config, "device").span) == '"rbln"'


def test_places_are_bytes_behind_wide_characters_and_a_byte_order_mark(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "model.json", b"\xef\xbb\xbf" + '{"model": "日本", "x": 4}'.encode()))
    assert bytes_at(config, setting_of(config, "x").span) == "4"
    assert setting_of(config, "x").location.column == 22


def test_types_and_duplicates_are_kept(tmp_path: Path) -> None:
    text = '{"a": "4", "a": 4, "b": 4.0, "c": true, "d": null, "e": {"f": [1]}, "g/~": 1}'
    config = read_one(write(tmp_path / "model.json", text))
    pairs = [(setting.name, setting.value) for setting in config.settings]
    assert pairs[:3] == [("a", "4"), ("a", 4), ("b", 4.0)]
    assert isinstance(pairs[2][1], float)
    assert pairs[3:6] == [("c", True), ("d", None), ("e", {"f": [1]})]
    assert config.settings[-1].location.pointer == "/g~1~0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1,}', "line 1, column 9: not JSON: a key should stand here"),
        ('{"a": 1', "`,` should stand here, not the end of the file"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": True}', "line 1, column 7"),
        ('{"a": 01}', "line 1, column 7"),
        ('{"a": NaN}', "line 1, column 7"),
        ('{"a" 1}', "`:` should stand here"),
        ('{"a": 1}\n// note', "line 2, column 1"),
        ('{"a": "\n"}', "line 1, column 7"),
        (r'{"a": "\q"}', "line 1, column 7"),
        (r'{"a": "\ud800"}', "line 1, column 7"),
        ("[1]", "a JSON object"),
        ("", "a value should stand here"),
    ],
)
def test_broken_in_one_way(tmp_path: Path, content: str, message: str) -> None:
    assert message in failure_of(write(tmp_path / "model.json", content))


@given(VALUES, INDENTS, st.booleans())
def test_reads_what_the_standard_library_reads(value: JsonValue, indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    try:
        node = parse_json(SourceText(text, "x"))
    except UnreadableConfig:
        assert "\\ud" in text  # half a surrogate pair
        return
    assert json.dumps(node.plain()) == json.dumps(value)
    assert json.loads(text[node.start : node.end]) == value


@given(st.lists(st.tuples(st.sampled_from("abc"), VALUES), min_size=1, max_size=5), st.data(), INDENTS)
def test_cutting_a_member_leaves_the_others(
    members: list[tuple[str, JsonValue]], data: st.DataObject, indent: int | None
) -> None:
    separator = ",\n" if indent else ", "
    text = "{" + separator.join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members) + "}"
    try:
        read = parse_json(SourceText(text, "x")).members or ()
    except UnreadableConfig:
        return
    index = data.draw(st.integers(0, len(read) - 1))
    rest = parse_json(SourceText(text[: read[index].cut_start] + text[read[index].cut_end :], "x")).members or ()
    expected = members[:index] + members[index + 1 :]
    assert [(member.key, json.dumps(member.value.plain())) for member in rest] == [
        (key, json.dumps(value)) for key, value in expected
    ]
