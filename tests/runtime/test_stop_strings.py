from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.stop_strings import StopMatcher

# Two letters make overlapping, repeating and nested stop strings likely.
words = st.text("ab", min_size=1, max_size=5)
pieces = st.lists(st.text("abc", max_size=4), max_size=20)


def whole_match(text: str, stops: list[str]) -> tuple[int, int, str] | None:
    """The match by the rules, found the slow way: earliest end, then earliest start."""
    for end in range(1, len(text) + 1):
        matched = [stop for stop in stops if text[:end].endswith(stop)]
        if matched:
            longest = max(matched, key=len)
            return end - len(longest), end, longest
    return None


@given(pieces=pieces, stops=st.lists(words, max_size=4), include=st.booleans())
def test_streaming_gives_what_a_search_of_the_whole_text_gives(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    matcher, text = StopMatcher(stops, include), "".join(pieces)
    expected = whole_match(text, stops)
    out, found = "", None
    for piece in pieces:
        released, found = matcher.feed(piece)
        out += released
        if expected is not None:
            assert len(out) <= (expected[1] if include else expected[0])
        if found is not None:
            break
    else:
        out += matcher.flush()
    if expected is None:
        assert (out, found) == (text, None)
    else:
        assert (out, found) == (text[: expected[1] if include else expected[0]], expected[2])


@given(pieces=pieces, stops=st.lists(words, min_size=1, max_size=4))
def test_only_the_beginning_of_a_stop_string_is_held_back(pieces: list[str], stops: list[str]) -> None:
    matcher, fed, out = StopMatcher(stops, include=False), "", ""
    for piece in pieces:
        released, found = matcher.feed(piece)
        if found is not None:
            return
        fed, out = fed + piece, out + released
        held = fed[len(out) :]
        assert len(held) == matcher.num_held
        longest = max((n for stop in stops for n in range(len(stop)) if fed.endswith(stop[:n])), default=0)
        assert len(held) == longest


def test_without_stop_strings_all_text_passes() -> None:
    matcher = StopMatcher([], include=False)
    assert matcher.feed("abc") == ("abc", None)
    assert matcher.flush() == ""


def test_a_stop_string_begins_and_ends_inside_pieces() -> None:
    matcher = StopMatcher(["wo ST"], include=False)
    assert matcher.feed(": one, tw") == (": one, t", None)
    assert matcher.feed("o STOP here") == ("", "wo ST")


def test_of_matches_that_end_together_the_longest_wins() -> None:
    assert StopMatcher(["b", "ab"], include=False).feed("xab") == ("x", "ab")


def test_the_match_that_ends_first_wins_over_the_one_that_starts_first() -> None:
    assert StopMatcher(["abcd", "bc"], include=True).feed("abcd") == ("abc", "bc")


def test_a_long_repeating_stop_string_costs_no_more_than_its_text() -> None:
    matcher = StopMatcher(["a" * 4095 + "b"], include=False)
    out = "".join(matcher.feed("a")[0] for _ in range(20_000))
    assert len(out) == 20_000 - 4095
