"""config.pbtxt: what the server's parser sees, with places, and what it stops at."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.validate.readers.pbtxt_text import PbField, parse_pbtxt
from llmpack.validate.readers.read import read_paths
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.triton_schema import find_syntax_error, known_fields
from tests.validate.reading import bytes_at, failure_of, read_one, write

CONFIG = """# the model
name: "llama"
backend: 'python'
max_batch_size: 8
input [
  {
    name: "prompt"
    data_type: TYPE_STRING
    dims: [ -1, 2 ]  # text
    allow_ragged_batch: true
  }
]
output { name: "text" data_type: TYPE_STRING dims: -1 }
instance_group [ { kind: KIND_GPU gpus: [0, 1] }, { count: 2; kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [2, 4] max_queue_delay_microseconds: 300 }
model_transaction_policy { decoupled: True }
parameters { key: "tokenizer" value: { string_value: "/a" "b" } }
"""


def test_model_with_places(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "llama/config.pbtxt", CONFIG))
    model = config.triton
    assert model is not None
    assert config.defects == ()
    assert config.target == "triton-python"
    assert (model.name, model.backend, model.max_batch_size, model.decoupled) == ("llama", "python", 8, True)
    (tensor,) = model.inputs
    assert (tensor.name, tensor.data_type, tensor.dims) == ("prompt", "TYPE_STRING", (-1, 2))
    assert tensor.allow_ragged_batch
    assert (tensor.location.line, tensor.location.pointer) == (6, "input[0]")
    assert bytes_at(config, tensor.dims_span) == "[ -1, 2 ]"
    assert bytes_at(config, tensor.name_span) == '"prompt"'
    assert bytes_at(config, tensor.data_type_span) == "TYPE_STRING"
    assert bytes_at(config, model.outputs[0].dims_span) == "-1"
    assert bytes_at(config, model.spans["max_batch_size"]) == "8"
    assert model.locations["max_batch_size"].line == 4
    assert [(group.kind, group.count, group.gpus) for group in model.instance_groups] == [
        ("KIND_GPU", None, (0, 1)),
        ("KIND_CPU", 2, ()),
    ]
    assert bytes_at(config, model.instance_groups[1].kind_span) == "KIND_CPU"
    assert model.dynamic_batching is not None
    assert model.dynamic_batching.preferred_batch_size == (2, 4)
    assert (bytes_at(config, model.dynamic_batching.entry_span) or "").startswith("dynamic_batching {")
    assert [(item.name, item.value) for item in model.parameters] == [("tokenizer", "/ab")]


def test_ensemble_maps_in_all_legal_spellings(tmp_path: Path) -> None:
    text = """platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "a" model_version: -1
    input_map { key: "x" value: "y" }
    output_map [ { key: "p" value: "q" }, { key: "r" value: "s" } ] },
  { model_name: "b" model_version: 3 input_map < key: "q" value: "q" > }
] }
"""
    config = read_one(write(tmp_path / "config.pbtxt", text))
    assert config.triton is not None
    assert config.target == "triton-ensemble"
    first, second = config.triton.ensemble_steps
    assert [(entry.key, entry.value) for entry in first.output_map] == [("p", "q"), ("r", "s")]
    assert (second.model_name, second.model_version, second.input_map[0].key) == ("b", 3, "q")
    assert first.output_map[1].location.pointer == "ensemble_scheduling.step[0].output_map[1]"
    assert first.output_map[1].location.line == 5


def test_no_break_spaces_are_found_outside_strings_and_comments_only(tmp_path: Path) -> None:
    text = 'name: "a\u00a0b" # \u00a0\ninput {\n\u00a0\u00a0name:\u00a0"x"\n}\n'
    config = read_one(write(tmp_path / "config.pbtxt", text))
    assert config.triton is not None
    assert config.triton.name == "a\u00a0b"
    found = [
        (item.kind, item.text, item.location.line, item.location.column, item.replacement) for item in config.defects
    ]
    assert found == [("non-ascii", "\u00a0\u00a0", 3, 1, "  "), ("non-ascii", "\u00a0", 3, 8, " ")]
    assert [bytes_at(config, item.span) for item in config.defects] == ["\u00a0\u00a0", "\u00a0"]


def test_visible_foreign_characters_have_no_certain_replacement(tmp_path: Path) -> None:
    (defect,) = read_one(write(tmp_path / "config.pbtxt", 'name: "a" é\n')).defects
    assert (defect.kind, defect.replacement) == ("non-ascii", None)


@pytest.mark.parametrize(
    "text", ["max_batch_size: ${n}", 'name: "${name}"', "max_batch_size: ${a}0", "input { dims: [${d}] name: 'x' }"]
)
def test_template_variables_are_found_before_parsing(tmp_path: Path, text: str) -> None:
    defects = read_one(write(tmp_path / "config.pbtxt", text)).defects
    assert [defect.kind for defect in defects] == ["unrendered"]
    assert "${" in defects[0].text


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('nam: "x"', 'no field named "nam"', 1),
        ("\nmax_batch_size: true", "integer", 2),
        ('max_batch_size: "4"', "integer", 1),
        ('name: "x"\nname: "y"', "multiple", 2),
        ("instance_group { kind: KIND_NPU }", "KIND_NPU", 1),
        ("dynamic_batching {} ensemble_scheduling {}", "oneof", 1),
        ("input { data_type: TYPE_BYTES }", "TYPE_BYTES", 1),
    ],
)
def test_what_the_library_refuses_is_a_defect(tmp_path: Path, text: str, message: str, line: int) -> None:
    (defect,) = read_one(write(tmp_path / "config.pbtxt", text)).defects
    assert defect.kind == "syntax"
    assert message in defect.text
    assert defect.location.line == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "x', "line 1, column 7: not protobuf text"),
        ("input {", "`}` is missing"),
        ("input { } }", "line 1, column 11: not protobuf text: a field name"),
        ("name", "a value should stand here"),
        ("input [ {}", "`]` should stand here"),
        ("name: @", "line 1, column 7"),
        ("input {" * 40, "deeper than 32 levels"),
    ],
)
def test_broken_in_one_way(tmp_path: Path, text: str, message: str) -> None:
    assert message in failure_of(write(tmp_path / "config.pbtxt", text))


@given(st.text(alphabet='ab:1 {}[],;"\n#<>', max_size=30))
def test_never_fails_otherwise(text: str) -> None:
    from llmpack.errors import UnreadableConfig

    try:
        parsed = parse_pbtxt(SourceText(text, "x"))
    except UnreadableConfig:
        return
    find_syntax_error(parsed.plain)
    _check_places(text, parsed.root)


def _check_places(text: str, field: PbField) -> None:
    for inner in field.fields or ():
        assert text[inner.name_start :].startswith(inner.name)
        if inner.scalar is not None and not inner.is_string:
            assert text[inner.start : inner.end] == inner.scalar
        _check_places(text, inner)


def test_schema_knows_the_fields_of_a_model() -> None:
    assert {"name", "max_batch_size", "dynamic_batching", "parameters"} <= known_fields()
    assert find_syntax_error("") is None


def test_directory_facts(tmp_path: Path) -> None:
    write(tmp_path / "repo/m/config.pbtxt", 'backend: "python"')
    write(tmp_path / "repo/m/1/model.py", "x = 1")
    write(tmp_path / "repo/m/2/weights.bin", b"\0")
    write(tmp_path / "repo/m/notes/readme", "")
    model = read_paths([tmp_path / "repo"]).configs[0].triton
    assert model is not None
    assert model.version_dirs == ("1", "2")
    assert model.version_files == ("1/model.py", "2/weights.bin")
    assert model.is_repository
    assert model.model_py is not None
    assert model.model_py.path == str(tmp_path / "repo/m/1/model.py")


def test_a_config_given_alone_is_no_repository(tmp_path: Path) -> None:
    model = read_one(write(tmp_path / "config.pbtxt", 'name: "x"')).triton
    assert model is not None
    assert not model.is_repository
