"""Special token ids are collected from every file that names one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.source import open_checkpoint
from llmpack.checkpoint.tokens import find_chat_template, find_special_tokens
from llmpack.errors import CorruptCheckpoint
from tests.checkpoint.files import write_json, write_single

ADDED = ["<|endoftext|>", "<s>", "</s>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>"]
TOKENIZER = {
    "added_tokens": [{"id": i, "content": token, "special": True} for i, token in enumerate(ADDED)],
    "model": {"type": "BPE", "vocab": {"x": 7}},
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_single(tmp_path)
    write_json(tmp_path / "tokenizer.json", TOKENIZER)
    return tmp_path


def make(directory: Path, config: dict[str, Any], template: str | None = None, **files: dict[str, Any]) -> Checkpoint:
    write_json(directory / "config.json", {"vocab_size": 8} | config)
    for name, content in files.items():
        write_json(directory / f"{name}.json", content)
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    return open_checkpoint(str(directory))


def test_eos_is_the_union_of_all_four_sources(directory: Path) -> None:
    checkpoint = make(
        directory,
        {"eos_token_id": 0},
        "{{ m }}<|im_end|>",
        generation_config={"eos_token_id": [2]},
        tokenizer_config={"eos_token": {"content": "<|eot_id|>"}},
    )
    assert find_special_tokens(checkpoint).eos_token_ids == {0, 2, 3, 4}


def test_bos_and_pad_come_from_the_first_file_that_names_one(directory: Path) -> None:
    checkpoint = make(
        directory,
        {"bos_token_id": None, "pad_token_id": -1},
        generation_config={"bos_token_id": 1},
        tokenizer_config={"bos_token": "<|endoftext|>", "pad_token": "</s>"},
    )
    assert find_special_tokens(checkpoint) == (1, frozenset(), 2)


def test_an_end_of_turn_token_that_the_template_never_writes_is_no_eos(directory: Path) -> None:
    assert find_special_tokens(make(directory, {"eos_token_id": 2}, "{{ m }}</s>")).eos_token_ids == {2}


def test_without_a_template_nothing_is_added(directory: Path) -> None:
    assert find_special_tokens(make(directory, {})) == (None, frozenset(), None)


def test_in_a_template_with_channels_end_closes_a_message_only(directory: Path) -> None:
    assert find_special_tokens(make(directory, {}, "{{ m }}<|end|>")).eos_token_ids == {5}
    channels = make(directory, {"eos_token_id": 6}, "<|channel|>final{{ m }}<|end|>")
    assert find_special_tokens(channels).eos_token_ids == {6}


def test_a_nested_text_config_counts(directory: Path) -> None:
    checkpoint = make(directory, {"text_config": {"eos_token_id": 4, "vocab_size": 8}})
    assert find_special_tokens(checkpoint).eos_token_ids == {4}


@pytest.mark.parametrize("eos", [8, -1, "2", True, [2, 99]])
@pytest.mark.parametrize("place", ["config", "generation_config"])
def test_an_id_outside_the_vocabulary_is_refused(directory: Path, place: str, eos: object) -> None:
    fields = {"eos_token_id": eos}
    made = make(directory, fields) if place == "config" else make(directory, {}, generation_config=fields)
    with pytest.raises(CorruptCheckpoint, match=rf"{place}\.json, eos_token_id.*0 to 7"):
        find_special_tokens(made)


def test_a_named_token_must_exist(directory: Path) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"tokenizer_config\.json, eos_token; given: <nope>"):
        find_special_tokens(make(directory, {}, tokenizer_config={"eos_token": "<nope>"}))


def test_the_template_file_wins_over_the_tokenizer_config(directory: Path) -> None:
    assert find_chat_template(make(directory, {}, "one", tokenizer_config={"chat_template": "two"})) == "one"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("two", "two"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], None),
        (None, None),
    ],
)
def test_the_template_in_the_tokenizer_config(directory: Path, field: object, expected: str | None) -> None:
    assert find_chat_template(make(directory, {}, tokenizer_config={"chat_template": field})) == expected


def test_a_real_checkpoint() -> None:
    checkpoint = open_checkpoint(str(Path(__file__).parents[1] / "data" / "stories260K"))
    assert find_special_tokens(checkpoint) == (1, frozenset({1, 2}), None)
