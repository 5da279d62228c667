"""Names, bytes and offsets of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.request import TokenLogprobs
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.logprob_format import TextOffsets, TokenNames, chat_logprobs, completion_logprobs, echoed_logprobs
from tests.server.scripted import EOS

STORIES = Path(__file__).parents[1] / "data" / "stories260K"


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    return Tokenizer.from_directory(STORIES)


def entry(token_id: int, *top: int) -> TokenLogprobs:
    return TokenLogprobs(token_id, -1.0, 1, top, tuple(-1.0 - rank for rank in range(len(top))))


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30))
def test_offsets_point_at_the_character_a_token_is_part_of(text: str, scripted_tokenizer: Tokenizer) -> None:
    ids = scripted_tokenizer.encode(text, add_special_tokens=False)
    names = TokenNames(scripted_tokenizer)
    offsets = TextOffsets(names, skip_special=False)
    raw = text.encode()
    num_bytes = 0
    for token_id in ids:
        assert offsets.next(token_id) == len(raw[:num_bytes].decode(errors="ignore"))
        num_bytes += len(names.raw(token_id))
    assert num_bytes == len(raw)
    assert offsets.position == len(text)


def test_hidden_tokens_take_no_room(scripted_tokenizer: Tokenizer) -> None:
    eos = scripted_tokenizer.eos_token_id
    assert eos is not None
    (one,) = scripted_tokenizer.encode(" one", add_special_tokens=False)
    hidden = TextOffsets(TokenNames(scripted_tokenizer), start=3)
    assert [hidden.next(token_id) for token_id in (one, eos, one)] == [3, 7, 7]
    shown = TextOffsets(TokenNames(scripted_tokenizer), skip_special=False)
    assert [shown.next(token_id) for token_id in (eos, one)] == [0, len(EOS)]


def test_offsets_stay_within_a_text_that_was_cut_at_a_stop_string(scripted_tokenizer: Tokenizer) -> None:
    ids = scripted_tokenizer.encode(": one, two", add_special_tokens=False)
    names = TokenNames(scripted_tokenizer)
    written = completion_logprobs([entry(token_id) for token_id in ids], 0, names, TextOffsets(names), len(": one"))
    assert written.text_offset == [0, 1, 5, 5]


def test_the_space_before_the_first_word_is_not_counted_in_an_echo(stories: Tokenizer) -> None:
    text = "Once upon"
    ids = stories.encode(text, add_special_tokens=True)
    names = TokenNames(stories)
    written = echoed_logprobs([None, *(entry(token_id) for token_id in ids[1:])], ids, 0, names, len(text))
    assert written.text_offset[:2] == [0, 0]
    for offset, name in list(zip(written.text_offset, written.tokens, strict=True))[2:]:
        assert text[offset:].startswith(name)


def test_tokens_with_one_text_stay_apart(stories: Tokenizer) -> None:
    as_byte, as_letter = stories.id_of("<0x41>"), stories.id_of("A")
    assert as_byte is not None
    assert as_letter is not None
    names = TokenNames(stories)
    assert names.name(as_byte) == names.name(as_letter) == "A"
    assert names.by_name([(as_letter, -1.0), (as_byte, -2.0)]) == {"A": -1.0, r"bytes:\x41": -2.0}
    assert names.by_name([(as_byte, -1.0)] * 3) == {"A": -1.0, r"bytes:\x41": -1.0, f"token_id:{as_byte}": -1.0}


def test_the_chosen_token_is_added_to_the_best_when_it_is_not_among_them(scripted_tokenizer: Tokenizer) -> None:
    one, two = (scripted_tokenizer.encode(word, add_special_tokens=False)[0] for word in (" one", " two"))
    names = TokenNames(scripted_tokenizer)
    other = completion_logprobs([entry(one, two)], 1, names, TextOffsets(names), 4)
    assert list(other.top_logprobs[0] or {}) == [" two", " one"]
    same = completion_logprobs([entry(one, one, two)], 1, names, TextOffsets(names), 4)
    assert list(same.top_logprobs[0] or {}) == [" one"]
    chat = chat_logprobs([entry(one, two, one)], 1, names)
    assert [top.token for top in chat.content[0].top_logprobs] == [" two"]
