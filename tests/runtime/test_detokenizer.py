from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.detokenizer import IncrementalDetokenizer
from llmpack.runtime.tokenizer import Tokenizer
from tests.runtime.tokenizer_samples import BOTH, byte_level, stories


def stream(tokenizer: Tokenizer, prompt: list[int], ids: list[int], skip: bool) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Any ids, with byte tokens, special ones and ids that have no token well represented."""
    partial = [token_id for token_id in range(tokenizer.vocab_size) if tokenizer.is_partial(token_id)]
    some = st.integers(0, tokenizer.vocab_size + 2) | st.sampled_from(partial or [0]) | st.integers(0, 2)
    return st.lists(some, max_size=40)


@pytest.mark.parametrize("name", BOTH)
@given(data=st.data())
def test_streamed_text_is_the_whole_text(name: str, data: st.DataObject) -> None:
    tokenizer = BOTH[name]()
    ids, skip = data.draw(ids_of(tokenizer)), data.draw(st.booleans())
    assert "".join(stream(tokenizer, [], ids, skip)) == tokenizer.decode(ids, skip)


@given(prompt=ids_of(stories()), ids=ids_of(stories()), skip=st.booleans())
def test_text_after_a_prompt_is_what_decoding_adds_to_it(prompt: list[int], ids: list[int], skip: bool) -> None:
    prompt = [*prompt, 260]
    whole = stories().decode([*prompt, *ids], skip)
    assert "".join(stream(stories(), prompt, ids, skip)) == whole[len(stories().decode(prompt, skip)) :]


def test_a_leading_space_depends_on_the_prompt() -> None:
    once = 403
    assert stream(stories(), [1], [once], True) == ["Once", ""]
    assert stream(stories(), [1, 260], [once], True) == [" Once", ""]
    assert stream(stories(), [1, 260, *[3] * 8], [once], True) == ["Once", ""]


@pytest.mark.parametrize("name", BOTH)
def test_a_character_comes_in_one_piece(name: str) -> None:
    tokenizer = BOTH[name]()
    ids = tokenizer.encode("a 😀€ b", add_special_tokens=False)
    pieces = stream(tokenizer, [1], ids, True)
    assert "".join(pieces) == "a 😀€ b"
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("name", BOTH)
def test_unfinished_bytes_are_flushed_as_replacement_characters(name: str) -> None:
    tokenizer = BOTH[name]()
    ids = tokenizer.encode("a😀", add_special_tokens=False)[:-1]
    detokenizer = IncrementalDetokenizer(tokenizer, [], True)
    assert "\ufffd" not in "".join(detokenizer.push(token_id) for token_id in ids)
    assert detokenizer.has_pending
    assert detokenizer.flush() == tokenizer.decode(ids).removeprefix("a") != ""


def test_no_text_of_the_prompt_is_released() -> None:
    prompt = byte_level().encode("😀", False)[:-1]
    assert "".join(stream(byte_level(), prompt, byte_level().encode("the end", False), True)) == "the end"


def test_hidden_tokens_do_not_cut_a_character() -> None:
    euro = [3 + byte for byte in "€".encode()]
    assert "".join(stream(stories(), [1], [euro[0], 2, euro[1], euro[2], 260], True)) == "€he"


def test_time_per_token_does_not_grow() -> None:
    rng = random.Random(5)
    for tokenizer in (byte_level(), stories()):
        ids = [rng.randrange(3, tokenizer.vocab_size) for _ in range(20_000)]
        begin = time.perf_counter()
        stream(tokenizer, [], ids, True)
        # Quadratic decoding would take minutes; linear takes a tenth of a second.
        assert time.perf_counter() - begin < 10
