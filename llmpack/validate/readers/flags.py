"""Flags of a server's command line as settings.

Source: `argparse` of Python 3.11, and vLLM's `FlexibleArgumentParser`: dashes and underscores are one, `--a.b 1` is the
member `b` of the JSON object `a`, and short flags have members too (`-cc.mode 3`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmpack.validate.model import JsonValue, Setting, Span
from llmpack.validate.readers.flag_shapes import flag_shapes
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import Word

_LONG = re.compile(r"--[A-Za-z][\w.-]*")
_SHORT = re.compile(r"(-[A-Za-z][A-Za-z-]*)((?:\.[\w-]+)*)")
_OPTIMIZATION = re.compile(r"-O(\d)")
# What may lie between two words of one command: blanks, continued lines, a list's commas and dashes.
_GAP = re.compile(r"[\s\\,]*(?:-[ \t]+)?")
_NUMBER = re.compile(r"-\.?\d")


def read_flags(source: SourceText, words: Sequence[Word], *, takes_model: bool) -> tuple[Setting, ...]:
    """The settings that the words say, in order, repetitions included.

    Args:
        source: The file that the words stand in.
        words: The command's last word, then its arguments.
        takes_model: Whether the first word that belongs to no flag is the model.
    """
    reader = _FlagReader(source, words, takes_model=takes_model)
    return _merge_dotted(reader.settings())


def name_of(flag: str) -> str:
    """The canonical name: `max_num_seqs` of `--max-num-seqs`."""
    return flag.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag word taken apart; `value` is what stands behind its `=`."""

    word: Word
    name: str
    spelling: str
    value: Word | None


class _FlagReader:
    def __init__(self, source: SourceText, words: Sequence[Word], *, takes_model: bool) -> None:
        self._source = source
        self._words = words
        self._at = 1
        self._before = words[0]
        self._takes_model = takes_model

    def settings(self) -> list[Setting]:
        found: list[Setting] = []
        while self._at < len(self._words):
            word = self._words[self._at]
            self._before = self._words[self._at - 1]
            self._at += 1
            if word.text == "--":
                break
            flag = _find_flag(word)
            if flag:
                found.append(self._flag_setting(flag))
            elif self._takes_model:
                self._takes_model = False
                found.append(self._setting(_Flag(word, "model", "model", word), [word], has_key=False))
        return found

    def _flag_setting(self, flag: _Flag) -> Setting:
        if flag.value is not None:
            return self._setting(flag, [flag.value])
        return self._setting(flag, self._following_values(flag.name))

    def _following_values(self, name: str) -> list[Word]:
        shapes = flag_shapes()
        if name in shapes.boolean or name.startswith("no_"):
            return []
        values: list[Word] = []
        most = len(self._words) if name in shapes.many_valued else 1
        while len(values) < most and self._at < len(self._words) and _is_value(self._words[self._at]):
            values.append(self._words[self._at])
            self._at += 1
        return values

    def _setting(self, flag: _Flag, values: list[Word], *, has_key: bool = True) -> Setting:
        name, value, is_known = flag.name, _value(values), all(word.is_known for word in values)
        if not values and name.startswith("no_"):
            name, value = name.removeprefix("no_"), False
        place = values[0] if values else flag.word
        return Setting(
            name,
            value,
            flag.spelling,
            self._source.location(place.start, flag.spelling),
            span=values[0].span(self._source) if len(values) == 1 else None,
            key_span=flag.word.head(len(flag.spelling)).span(self._source) if has_key else None,
            entry_span=self._entry_span(flag.word, [flag.word, *values][-1]),
            is_known=is_known,
        )

    def _entry_span(self, first: Word, last: Word) -> Span | None:
        """From the end of the word before to the end of the value; None if more than blanks lies before the flag."""
        start, end = self._before.end, last.end
        if not start < first.start < end or not _GAP.fullmatch(self._source.text, start, first.start):
            return None
        return self._source.span(start, end)


def _find_flag(word: Word) -> _Flag | None:
    if match := _LONG.match(word.text):
        return _Flag(word, name_of(match[0]), match[0], _value_behind(word, match.end()))
    if match := _OPTIMIZATION.fullmatch(word.text):
        return _Flag(word, "compilation_config", "-O", word.cut(2))
    match = _SHORT.match(word.text)
    if match and (name := flag_shapes().short.get(match[1])):
        return _Flag(word, name + match[2], match[0], _value_behind(word, match.end()))
    if match and match.end() == len(word.text):
        return _Flag(word, name_of(match[0]), match[0], None)
    return None


def _value_behind(word: Word, at: int) -> Word | None:
    return word.cut(at + 1) if word.text[at : at + 1] == "=" else None


def _is_value(word: Word) -> bool:
    return not word.text.startswith("-") or word.text == "-" or bool(_NUMBER.match(word.text))


def _value(words: list[Word]) -> JsonValue:
    if not words:
        return True
    if len(words) > 1:
        return [word.text for word in words]
    return _decode(words[0])


def _decode(word: Word) -> JsonValue:
    """The text, or what it holds if it is a JSON object or list."""
    if word.is_known and word.text.lstrip()[:1] in {"{", "["}:
        try:
            value: JsonValue = json.loads(word.text)
        except (ValueError, RecursionError):
            return word.text
        return value
    return word.text


def _merge_dotted(settings: list[Setting]) -> tuple[Setting, ...]:
    """The settings with `--a.b 1 --a.c.d 2` as one object `a`, in the place of the first."""
    merged: dict[str, int] = {}
    result: list[Setting] = []
    for setting in settings:
        name, dot, path = setting.name.partition(".")
        if not dot:
            result.append(setting)
            continue
        if name not in merged:
            merged[name] = len(result)
            spelling = setting.spelling.partition(".")[0]
            result.append(replace(setting, name=name, value={}, spelling=spelling, span=None, entry_span=None))
        target = result[merged[name]]
        _put(target.value, path.split("."), _leaf(setting.value))
        result[merged[name]] = replace(target, is_known=target.is_known and setting.is_known)
    return tuple(result)


def _leaf(value: JsonValue) -> JsonValue:
    """A member's value: JSON if it reads as such, else text."""
    if not isinstance(value, str):
        return value
    try:
        decoded: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return decoded


def _put(target: JsonValue, path: list[str], value: JsonValue) -> None:
    for key in path[:-1]:
        if not isinstance(target, dict):
            return
        target = target.setdefault(key, {})
    if isinstance(target, dict):
        target[path[-1]] = value
