"""Shell text as simple commands whose words keep their places.

Reads what starts servers: quotes, escapes, continuations, comments, variables, redirections and here-documents. It
never runs anything; a command substitution is an unknown word.
Source: POSIX.1-2024 Shell Command Language 2.2, 2.3 and 2.7; Bash manual 3.1.2.4 for $'...'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmpack.validate.readers.expansion import MAX_EXPANDED_CHARACTERS, expand
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import FROM_VARIABLE, UNKNOWN, MappedText, Word

MAX_WORDS = 20_000
_PLAIN = re.compile(r"[^\s\\;&|()<>'\"$`]+")
_SINGLE = re.compile(r"'([^']*)'")
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_DOUBLE_PLAIN = re.compile(r"[^\\\"$`]+")
_CONTINUATION = re.compile(r"\\\r?\n")
# Documentation's way of saying "put yours here": `<PATH>`, `</ABSOLUTE/PATH>`. As redirections these make no sense.
_PLACEHOLDER = re.compile(r"<[^<>\n()&|;'\"]+>(?=\s|$)")
_REDIRECTION = re.compile(r"<<<|<<-?|<>|<&|>>|>&|>\||<|>")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_OPENING = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSING = frozenset({"fi", "done", "esac"})
_KEYWORDS = _OPENING | _CLOSING | {"then", "else", "elif", "do", "{", "}", "!", "time", "in"}


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command.

    Attributes:
        words: Without redirections, keywords and assignments.
        assignments: `NAME=value` words that stand before it, and names exported earlier.
    """

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()


def split_commands(
    source: SourceText, mapped: MappedText, variables: Mapping[str, str], *, is_kubernetes: bool = False
) -> list[ShellCommand]:
    """The simple commands of the text in order.

    Args:
        source: The file, for places in errors.
        mapped: The text.
        variables: Values known from outside.
        is_kubernetes: Whether `$(NAME)` is a variable.

    Raises:
        UnreadableConfig: A quote is not closed, or more than `MAX_WORDS` words.
    """
    return _Lexer(source, mapped, dict(variables), is_kubernetes=is_kubernetes).commands()


def assigned(word: Word) -> tuple[str, Word] | None:
    """The name and value of a `NAME=value` word."""
    match = _ASSIGNMENT.match(word.text)
    if match is None or UNKNOWN in word.offsets[: match.end()]:
        return None
    return match[1], word.cut(match.end())


class _Lexer:
    def __init__(
        self, source: SourceText, mapped: MappedText, variables: dict[str, str], *, is_kubernetes: bool
    ) -> None:
        self._source = source
        self._mapped = mapped
        self._text = mapped.text
        self._variables = variables
        self._is_kubernetes = is_kubernetes
        self._at = 0
        self._num_words = 0
        self._num_expanded = 0
        self._block_depth = 0
        self._characters: list[str] = []
        self._offsets: list[int] = []
        self._word_start = -1
        self._words: list[Word] = []
        self._commands: list[ShellCommand] = []
        self._exported: list[Word] = []
        self._redirection = ""
        self._here_ends: list[str] = []

    def commands(self) -> list[ShellCommand]:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        self._end_command()
        return self._commands

    def _step(self, character: str) -> None:
        if character in " \t\r\n\f\v":
            self._space(character)
        elif character == "#" and self._word_start < 0:
            end = self._text.find("\n", self._at)
            self._at = end if end >= 0 else len(self._text)
        elif character in ";&|()":
            self._operator(character)
        elif character in "<>":
            self._angle()
        else:
            self._part(character)

    def _space(self, character: str) -> None:
        self._end_word()
        self._at += 1
        if character == "\n":
            self._end_command()
            self._skip_here_documents()

    def _operator(self, character: str) -> None:
        if character == "&" and self._text.startswith("&>", self._at):
            self._end_word()
            self._at += 1
            return
        self._end_command()
        self._at += 1

    def _angle(self) -> None:
        placeholder = _PLACEHOLDER.match(self._text, self._at) if self._word_start < 0 else None
        if placeholder:
            self._take(placeholder.start(), placeholder.end())
            self._at = placeholder.end()
            return
        if "".join(self._characters).isdecimal():  # 2>
            self._characters, self._offsets, self._word_start = [], [], -1
        self._end_word()
        match = _REDIRECTION.match(self._text, self._at)
        self._redirection = match[0] if match else "<"
        self._at += len(self._redirection)

    def _part(self, character: str) -> None:
        """One piece of a word: a quoted text, an escape, a variable or plain characters."""
        if continuation := _CONTINUATION.match(self._text, self._at):
            self._at = continuation.end()
            return
        if self._word_start < 0:
            self._word_start = self._at
        if character == "\\":
            self._take(self._at + 1, min(self._at + 2, len(self._text)))
            self._at += 2
        elif character == "'":
            self._single()
        elif character == '"':
            self._double()
        elif character == "`":
            self._substitution(self._text.find("`", self._at + 1) + 1 or len(self._text))
        elif character == "$":
            self._dollar()
        else:
            match = _PLAIN.match(self._text, self._at)
            end = match.end() if match else self._at + 1
            self._take(self._at, end)
            self._at = end

    def _take(self, start: int, end: int) -> None:
        if self._word_start < 0:
            self._word_start = start
        self._characters.append(self._text[start:end])
        self._offsets.extend(self._mapped.offsets(start, end))

    def _add(self, text: str, offsets: tuple[int, ...]) -> None:
        self._characters.append(text)
        self._offsets.extend(offsets)

    def _single(self) -> None:
        match = _SINGLE.match(self._text, self._at)
        if match is None:
            raise self._source.failure("a single quote is not closed", self._place(self._at))
        self._take(*match.span(1))
        self._at = match.end()

    def _double(self) -> None:
        opened = self._at
        self._at += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == '"':
                self._at += 1
                return
            if match := _DOUBLE_PLAIN.match(self._text, self._at):
                self._take(*match.span())
                self._at = match.end()
            elif character == "\\":
                self._escape_in_double()
            elif character == "$":
                self._dollar(is_quoted=True)
            else:
                self._substitution(self._text.find("`", self._at + 1) + 1 or len(self._text))
        raise self._source.failure("a double quote is not closed", self._place(opened))

    def _escape_in_double(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if continuation := _CONTINUATION.match(self._text, self._at):
            self._at = continuation.end()
            return
        start = self._at + 1 if following in {"$", "`", '"', "\\"} else self._at
        self._take(start, self._at + 2)
        self._at += 2

    def _dollar(self, *, is_quoted: bool = False) -> None:
        if not is_quoted and (match := _ANSI_C.match(self._text, self._at)):
            value = match[1].encode("latin-1", "backslashreplace").decode("unicode_escape")
            is_same = value == match[1]
            self._add(value, self._mapped.offsets(*match.span(1)) if is_same else (FROM_VARIABLE,) * len(value))
            self._at = match.end()
            return
        variables = self._variables if self._num_expanded < MAX_EXPANDED_CHARACTERS else {}
        expansion = expand(self._mapped, self._at, variables, is_kubernetes=self._is_kubernetes)
        self._num_expanded += len(expansion.text)
        self._add(expansion.text, expansion.offsets)
        self._at = expansion.end

    def _substitution(self, end: int) -> None:
        self._add(self._text[self._at : end], (UNKNOWN,) * (end - self._at))
        self._at = end

    def _place(self, at: int) -> int:
        offset = self._mapped.offset(at)
        return offset if offset >= 0 else self._mapped.anchor

    def _end_word(self) -> None:
        if self._word_start < 0:
            return
        start, end = self._place(self._word_start), self._place(self._at - 1) + 1
        word = Word("".join(self._characters), tuple(self._offsets), start, end)
        self._characters, self._offsets, self._word_start = [], [], -1
        self._num_words += 1
        if self._num_words > MAX_WORDS:
            raise self._source.failure(f"more than {MAX_WORDS} words", start)
        if self._redirection:
            if self._redirection in {"<<", "<<-"}:
                self._here_ends.append(word.text)
            self._redirection = ""
        else:
            self._words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        self._redirection = ""
        words = self._without_keywords(self._words)
        self._words = []
        num_assignments = 0
        while num_assignments < len(words) and assigned(words[num_assignments]):
            num_assignments += 1
        assignments, rest = words[:num_assignments], words[num_assignments:]
        if rest and rest[0].text in {"export", "readonly", "declare", "local", "typeset"}:
            declared = [word for word in rest[1:] if assigned(word)]
            self._assign(declared)
            if rest[0].text == "export" or any(word.text.startswith("-x") for word in rest[1:]):
                self._exported += declared
        elif rest:
            self._commands.append(ShellCommand(tuple(rest), (*self._exported, *assignments)))
        else:
            self._assign(assignments)

    def _without_keywords(self, words: list[Word]) -> list[Word]:
        while words and words[0].text in _KEYWORDS:
            keyword = words[0].text
            self._block_depth += (keyword in _OPENING) - (keyword in _CLOSING)
            if keyword in {"for", "select"} and len(words) > 1:
                self._variables.pop(words[1].text, None)
            words = words[1:] if keyword not in {"for", "select", "case"} else []
        return words

    def _assign(self, words: list[Word]) -> None:
        """Binds variables; one that is bound on some paths only is unknown from then on."""
        for word in words:
            name, value = assigned(word) or ("", word)
            if value.is_known and self._block_depth <= 0:
                self._variables[name] = value.text
            else:
                self._variables.pop(name, None)

    def _skip_here_documents(self) -> None:
        for mark in self._here_ends:
            match = re.compile(rf"^[\t ]*{re.escape(mark)}[ \t\r]*$", re.MULTILINE).search(self._text, self._at)
            self._at = match.end() if match else len(self._text)
        self._here_ends = []
