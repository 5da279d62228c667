"""Protobuf text with the place of every field and value.

Whether the text is right is the library's to say (`triton_schema`); this gives the places that the library keeps to
itself. Grammar: the protocol buffers' "Text Format Language Specification".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import TextDefect
from llmpack.validate.readers.source_text import SourceText

MAX_DEPTH = 32
MAX_TOKENS = 50_000
_TOKEN = re.compile(
    r"""
        (?P<space>[ \t\r\n\f\v]+|\#[^\n]*)
      | (?P<word>(?:[A-Za-z0-9_.+-]+|\$\{[^}\n]*\})+)
      | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
      | (?P<punctuation>[{}\[\]<>:,;])
      | (?P<foreign>[^\x00-\x7f]+)
    """,
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class PbField:
    """One `name: value` or `name { ... }`; a list gives one field per element, all with the list's place.

    Attributes:
        name_start: Offset of the name.
        start: Of the value; of the opening brace for a message.
        end: Behind the value or closing brace.
        scalar: The value's text, strings decoded; None for a message.
        is_string: Whether it stood in quotes.
        fields: Of a message; None for a scalar.
        list_start: Of the bracket that opens the list, or -1.
        list_end: Behind the bracket that closes it.
    """

    name: str
    name_start: int
    start: int
    end: int
    scalar: str | None = None
    is_string: bool = False
    fields: tuple[PbField, ...] | None = None
    list_start: int = -1
    list_end: int = -1

    def all(self, name: str) -> list[PbField]:
        """The message's fields called `name`, in order."""
        return [field for field in self.fields or () if field.name == name]

    def last(self, name: str) -> PbField | None:
        """The field called `name` that counts."""
        found = self.all(name)
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class PbText:
    """A file of protobuf text.

    Attributes:
        root: A message without a name.
        defects: Non-ASCII characters outside strings and comments, and template variables.
        plain: The text with non-ASCII characters outside strings made spaces: same length, readable by the library.
    """

    root: PbField
    defects: tuple[TextDefect, ...]
    plain: str


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def parse_pbtxt(source: SourceText) -> PbText:
    """The fields and defects of the text.

    Raises:
        UnreadableConfig: Not protobuf text, nested deeper than `MAX_DEPTH` or of more than `MAX_TOKENS` tokens.
    """
    tokens = list(_tokens(source))
    defects = tuple(defect for token in tokens if (defect := _find_defect(source, token)))
    parser = _Parser(source, [token for token in tokens if token.kind not in {"space", "foreign"}])
    fields = parser.fields(closing="", depth=0)
    root = PbField("", 0, 0, len(source.text), fields=fields)
    return PbText(root, defects, _blank_foreign(tokens))


def _tokens(source: SourceText) -> Iterator[_Token]:
    at, num_tokens = 0, 0
    while at < len(source.text):
        match = _TOKEN.match(source.text, at)
        if match is None:
            raise source.failure(f"not protobuf text: {source.text[at : at + 20]!r}", at)
        at = match.end()
        num_tokens += 1
        if num_tokens > MAX_TOKENS:
            raise source.failure(f"more than {MAX_TOKENS} words are no model configuration", at)
        yield _Token(str(match.lastgroup), match[0], match.start(), at)


def _find_defect(source: SourceText, token: _Token) -> TextDefect | None:
    place, span = source.location(token.start), source.span(token.start, token.end)
    if token.kind == "foreign":
        replacement = " " * len(token.text) if token.text.isspace() else None
        return TextDefect("non-ascii", token.text, place, span, replacement)
    if "${" in token.text and token.kind in {"word", "string"}:
        return TextDefect("unrendered", token.text, place, span)
    return None


def _blank_foreign(tokens: list[_Token]) -> str:
    return "".join(" " * len(token.text) if token.kind == "foreign" else token.text for token in tokens)


class _Parser:
    def __init__(self, source: SourceText, tokens: list[_Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0

    def fields(self, closing: str, depth: int) -> tuple[PbField, ...]:
        """Fields up to `closing`, which stays; an empty `closing` is the end of the file."""
        if depth > MAX_DEPTH:
            raise self._failure(f"deeper than {MAX_DEPTH} levels is no model configuration")
        fields: list[PbField] = []
        while (token := self._peek()) is not None and token.text != closing:
            fields.extend(self._field(depth))
            self._skip_separator()
        if token is None and closing:
            raise self._failure(f"not protobuf text: `{closing}` is missing")
        return tuple(fields)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self, allowed: str) -> _Token:
        token = self._peek()
        if token is None:
            raise self._failure(f"not protobuf text: {allowed} should stand here, not the end of the file")
        self._at += 1
        return token

    def _failure(self, what: str) -> UnreadableConfig:
        token = self._peek()
        return self._source.failure(what, token.start if token else len(self._source.text))

    def _skip_separator(self) -> None:
        token = self._peek()
        if token is not None and token.text in {",", ";"}:
            self._at += 1

    def _field(self, depth: int) -> list[PbField]:
        name = self._next("a field name")
        if name.kind != "word":
            self._at -= 1
            raise self._failure(f"not protobuf text: a field name should stand here, not {name.text[:20]}")
        token = self._peek()
        has_colon = token is not None and token.text == ":"
        if has_colon:
            self._at += 1
        token = self._peek()
        if token is not None and token.text == "[":
            return self._list(name, depth)
        return [self._value(name, depth, has_colon=has_colon)]

    def _list(self, name: _Token, depth: int) -> list[PbField]:
        opening = self._next("`[`")
        elements: list[PbField] = []
        while (token := self._peek()) is not None and token.text != "]":
            elements.append(self._value(name, depth, has_colon=True))
            token = self._peek()
            if token is not None and token.text == ",":
                self._at += 1
        closing = self._next("`]`")
        return [_in_list(element, opening.start, closing.end) for element in elements]

    def _value(self, name: _Token, depth: int, *, has_colon: bool) -> PbField:
        token = self._next("a value")
        if token.text in _CLOSING:
            inner = self.fields(_CLOSING[token.text], depth + 1)
            end = self._next("a closing brace").end
            return PbField(name.text, name.start, token.start, end, fields=inner)
        if token.kind not in {"word", "string"} or not has_colon:
            self._at -= 1
            raise self._failure(f"not protobuf text: a value of `{name.text}` should stand here, not {token.text[:20]}")
        return self._scalar(name, token)

    def _scalar(self, name: _Token, token: _Token) -> PbField:
        if token.kind != "string":
            return PbField(name.text, name.start, token.start, token.end, scalar=token.text)
        text, end = _unescape(token.text), token.end
        while (more := self._peek()) is not None and more.kind == "string":
            self._at += 1
            text, end = text + _unescape(more.text), more.end
        return PbField(name.text, name.start, token.start, end, scalar=text, is_string=True)


def _in_list(field: PbField, start: int, end: int) -> PbField:
    return PbField(
        field.name, field.name_start, field.start, field.end, field.scalar, field.is_string, field.fields, start, end
    )


def _unescape(quoted: str) -> str:
    """Octal and hexadecimal escapes stand for bytes of UTF-8, the others for characters."""
    raw = quoted[1:-1].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_bytes_of, raw).decode("utf-8", "replace")


def _bytes_of(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, *points, plain = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal or hexadecimal, 8 if octal else 16) & 0xFF])
    for digits in points:
        if digits:
            code = int(digits, 16)
            return (chr(code) if code <= 0x10FFFF else "\ufffd").encode("utf-8", "replace")
    return _ESCAPED.get(plain, plain)
