"""JSON with the place of every key and value, and duplicate keys kept.

The standard library's parser gives neither, and a later duplicate hides an earlier one that a reader of the file
believes. Grammar: RFC 8259, as strict as the `json.load` of Triton's backends, less NaN and Infinity.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import JsonValue
from llmpack.validate.readers.source_text import SourceText

MAX_DEPTH = 64
MAX_VALUES = 50_000
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<punctuation>[{}\[\],:])
      | (?P<string>"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")
      | (?P<number>-?(?:0|[1-9][0-9]{0,308})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9.A-Za-z]))
      | (?P<word>true|false|null)\b
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value and its characters: start <= offset < end, quotes and brackets included.

    Attributes:
        scalar: The value of a string, number, boolean or null.
        members: Of an object, duplicates included; None for anything else.
        items: Of a list; None for anything else.
    """

    start: int
    end: int
    scalar: JsonValue = None
    members: tuple[JsonMember, ...] | None = None
    items: tuple[JsonNode, ...] | None = None

    def plain(self) -> JsonValue:
        """The value as `json.loads` would give it: the last of duplicate keys wins."""
        if self.members is not None:
            return {member.key: member.value.plain() for member in self.members}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.scalar


@dataclass(frozen=True, slots=True)
class JsonMember:
    """One entry of an object.

    Attributes:
        key_start: Offset of the key's opening quote.
        key_end: Offset behind its closing quote.
        cut_start: From here ...
        cut_end: ... to before here lies what can be cut out so that the rest stays well-formed.
    """

    key: str
    value: JsonNode
    key_start: int
    key_end: int
    cut_start: int
    cut_end: int


def parse_json(source: SourceText, start: int = 0) -> JsonNode:
    """The one value in the text from `start` on.

    Raises:
        UnreadableConfig: Not JSON, nested deeper than `MAX_DEPTH` or with more than `MAX_VALUES` values.
    """
    return _Parser(source, start).document()


class _Parser:
    def __init__(self, source: SourceText, start: int) -> None:
        self._source = source
        self._at = start
        self._num_values = 0
        self._advance()

    def document(self) -> JsonNode:
        node = self._value(0)
        if self._kind != "end":
            raise self._unexpected("the end of the file")
        return node

    def _advance(self) -> None:
        match = _TOKEN.match(self._source.text, self._at)
        if match is None:
            at = len(self._source.text) - len(self._source.text[self._at :].lstrip(" \t\r\n"))
            raise self._source.failure(f"not JSON: {self._source.text[at : at + 20]!r}", at)
        self._kind = str(match.lastgroup)
        self._token = match[self._kind]
        self._start, self._at = match.span(self._kind)

    def _unexpected(self, allowed: str) -> UnreadableConfig:
        given = self._token or "the end of the file"
        return self._source.failure(f"not JSON: {allowed} should stand here, not {given[:20]}", self._start)

    def _expect(self, token: str) -> None:
        if self._token != token or self._kind != "punctuation":
            raise self._unexpected(f"`{token}`")
        self._advance()

    def _value(self, depth: int) -> JsonNode:
        self._num_values += 1
        if depth > MAX_DEPTH or self._num_values > MAX_VALUES:
            limit = f"deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_VALUES} values"
            raise self._source.failure(f"{limit} is no serving config", self._start)
        if self._kind == "punctuation" and self._token == "{":
            return self._object(depth)
        if self._kind == "punctuation" and self._token == "[":
            return self._list(depth)
        return self._scalar()

    def _scalar(self) -> JsonNode:
        if self._kind not in {"string", "number", "word"}:
            raise self._unexpected("a value")
        value = _WORDS[self._token] if self._kind == "word" else self._decode()
        node = JsonNode(self._start, self._at, value)
        self._advance()
        return node

    def _decode(self) -> JsonValue:
        try:
            value: JsonValue = json.loads(self._token)
            str(value).encode()  # half a surrogate pair is no text
        except ValueError as error:
            raise self._source.failure(f"not JSON: {error}", self._start) from None
        return value

    def _list(self, depth: int) -> JsonNode:
        start, items = self._start, []
        self._advance()
        while self._token != "]":
            items.append(self._value(depth + 1))
            if self._token != "]":
                self._expect(",")
                if self._token == "]":
                    raise self._unexpected("a value")
        end = self._at
        self._expect("]")
        return JsonNode(start, end, items=tuple(items))

    def _object(self, depth: int) -> JsonNode:
        start = self._start
        entries: list[tuple[str, int, int, JsonNode]] = []
        self._advance()
        while self._token != "}":
            entries.append(self._entry(depth))
            if self._token != "}":
                self._expect(",")
                if self._token == "}":
                    raise self._unexpected("a key")
        end = self._at
        self._expect("}")
        return JsonNode(start, end, members=_with_cuts(entries))

    def _entry(self, depth: int) -> tuple[str, int, int, JsonNode]:
        if self._kind != "string":
            raise self._unexpected("a key in double quotes")
        key, start, end = str(self._decode()), self._start, self._at
        self._advance()
        self._expect(":")
        return key, start, end, self._value(depth + 1)


def _with_cuts(entries: list[tuple[str, int, int, JsonNode]]) -> tuple[JsonMember, ...]:
    """Members that can be cut out: with the comma behind them, the last one with the comma before it."""
    members = []
    for index, (key, start, end, value) in enumerate(entries):
        cut_start, cut_end = start, value.end
        if index + 1 < len(entries):
            cut_end = entries[index + 1][1]
        elif index:
            cut_start = entries[index - 1][3].end
        members.append(JsonMember(key, value, start, end, cut_start, cut_end))
    return tuple(members)
