from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tokenizers

from llmpack.errors import ArtifactError, RequestError
from llmpack.runtime.tokenizer import Tokenizer
from tests.runtime.tokenizer_samples import STORIES, byte_level, stories, write_byte_level

TEXTS = ["Once upon a time", "  two  spaces ", "café 😀 日本", "", "<s>hi</s>", "a\nb\tc", "x<|end|>y"]


def rewrite(directory: Path, name: str, change: dict[str, object]) -> None:
    file = directory / name
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(content | change))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STORIES / name, tmp_path / name)
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    return tmp_path


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["stories", "byte_level", "add_bos_token", "special_tokens_map", "extra_tokens"])
def test_agrees_with_transformers(kind: str, copy: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from transformers import AutoTokenizer

    directory = copy
    if kind == "byte_level":
        directory = write_byte_level(tmp_path_factory.mktemp("byte_level"))
    changes: dict[str, dict[str, object]] = {
        "add_bos_token": {"add_bos_token": False, "add_eos_token": True},
        "extra_tokens": {
            "added_tokens_decoder": {"512": {"content": "<tool>", "special": False}},
            "pad_token": "<pad>",
            "additional_special_tokens": ["<|im_end|>"],
        },
    }
    rewrite(directory, "tokenizer_config.json", changes.get(kind, {}))
    if kind == "special_tokens_map":
        rewrite(directory, "special_tokens_map.json", {"eos_token": "<unk>", "pad_token": {"content": "<pad>"}})
    theirs, ours = AutoTokenizer.from_pretrained(directory), Tokenizer.from_directory(directory)
    assert ours.vocab_size == len(theirs)
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    for text in [*TEXTS, "a<tool>b<|im_end|><pad>"]:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, special) == ids, (text, special)
            for skip in (True, False):
                assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_bos_comes_from_the_post_processor() -> None:
    assert stories().encode("Once upon a time", True)[:3] == [1, 403, 407]
    assert stories().encode("Once upon a time", False)[:2] == [403, 407]


def test_truncation_and_padding_of_the_file_are_ignored(copy: Path) -> None:
    backend = tokenizers.Tokenizer.from_file(str(copy / "tokenizer.json"))
    backend.enable_truncation(4)
    backend.enable_padding(length=32)
    backend.save(str(copy / "tokenizer.json"))
    text = "Once upon a time there was"
    assert Tokenizer.from_directory(copy).encode(text, True) == stories().encode(text, True)


def test_special_tokens_map_fills_in_what_an_old_config_lacks(copy: Path) -> None:
    (copy / "tokenizer_config.json").write_text("{}")
    rewrite(copy, "special_tokens_map.json", {"eos_token": {"content": "</s>"}})
    tokenizer = Tokenizer.from_directory(copy)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (None, 2)


def test_token_bytes_add_up_to_the_text() -> None:
    text = "The quick café 😀 € 日本語 end"
    for tokenizer in (byte_level(), stories()):
        ids = tokenizer.encode(text, add_special_tokens=False)
        whole = b"".join(tokenizer.token_bytes(token_id) or b"" for token_id in ids)
        assert whole.decode().lstrip() == text
    assert stories().token_bytes(403) == b" Once"


def test_a_piece_of_a_character_is_spelled_as_bytes() -> None:
    assert stories().token_text(3 + 0xE2) == r"bytes:\xe2"
    assert stories().token_text(3 + 0x41) == "A"
    assert stories().token_text(260) == "he"
    assert stories().token_text(2) == "</s>"
    first = byte_level().encode("😀", False)[0]
    assert byte_level().token_text(first).startswith(r"bytes:\xf0")


def test_an_id_without_a_token_is_nothing() -> None:
    for tokenizer in (byte_level(), stories()):
        assert tokenizer.token_bytes(10_000) is None
        assert tokenizer.token_text(10_000) == ""
        assert tokenizer.decode([10_000]) == ""


def test_special_tokens_are_known() -> None:
    assert stories().special_ids == {0, 1, 2}
    assert byte_level().id_of("<|end|>") == byte_level().eos_token_id == 1
    assert byte_level().is_special(1)
    assert not byte_level().is_special(5)
    assert byte_level().id_of("no such token") is None


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(RequestError, match="Unicode"):
        stories().encode("a\ud800", True)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
def test_a_broken_file_is_named(copy: Path, name: str) -> None:
    (copy / name).write_text("{")
    with pytest.raises(ArtifactError, match=name):
        Tokenizer.from_directory(copy)
