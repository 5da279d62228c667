"""Environment files, as Docker, Compose and systemd read them.

Source: Compose "Env file" syntax: `export` allowed, single quotes literal, `#` after a blank starts a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from llmpack.validate.model import Location, ServingConfig, Setting
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import MappedText, Word
from llmpack.validate.readers.yaml_words import expand_all

_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*[=:][ \t]*(?P<value>.*)")
_QUOTED = re.compile(r"(['\"])(.*)\1[ \t]*(?:#.*)?")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_PREFIXES = ("LLMPACK_", "VLLM_")


def read_env_file(source: SourceText) -> ServingConfig:
    """The file's variables as settings.

    Raises:
        UnreadableConfig: A line is neither a variable, a comment nor empty.
    """
    variables: dict[str, str] = {}
    settings = tuple(_setting(source, name, start, word) for name, start, word in _lines(source, variables))
    is_ours = any(setting.spelling.startswith("LLMPACK_") for setting in settings)
    return ServingConfig(
        kind="env-file",
        origin="file",
        path=source.path,
        target="llmpack" if is_ours else "unknown",
        location=Location(source.path, 1, 1),
        settings=settings,
    )


def env_values(source: SourceText) -> dict[str, str]:
    """The file's variables whose values are known.

    Raises:
        UnreadableConfig: A line is neither a variable, a comment nor empty.
    """
    variables: dict[str, str] = {}
    for _ in _lines(source, variables):
        pass
    return variables


def env_settings(source: SourceText) -> tuple[Setting, ...]:
    """The file's variables as the environment of what it is given to, named as written.

    Raises:
        UnreadableConfig: A line is neither a variable, a comment nor empty.
    """
    return tuple(replace(setting, name=setting.spelling) for setting in read_env_file(source).settings)


def canonical_name(variable: str) -> str:
    """The setting that a variable stands for: `max_num_seqs` of `VLLM_MAX_NUM_SEQS`."""
    for prefix in _PREFIXES:
        variable = variable.removeprefix(prefix)
    return variable.lower()


def _lines(source: SourceText, variables: dict[str, str]) -> Iterator[tuple[str, int, Word]]:
    """Name, its offset and the value of each variable; `variables` takes the values that are known."""
    at = 0
    for line in source.text.splitlines(keepends=True):
        content = line.rstrip("\r\n")
        stripped = content.strip()
        if stripped and not stripped.startswith("#"):
            match = _LINE.fullmatch(content)
            if match is None:
                raise source.failure(f"not NAME=value: {content.strip()[:40]}", at)
            word = _value(source, at + match.start("value"), at + match.end("value"), variables)
            if word.is_known:
                variables[match["name"]] = word.text
            yield match["name"], at + match.start("name"), word
        at += len(line)


def _value(source: SourceText, start: int, end: int, variables: dict[str, str]) -> Word:
    text = source.text[start:end]
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        start, end = start + quoted.start(2), start + quoted.end(2)
    elif comment := _COMMENT.search(text):
        end = start + comment.start()
    content = source.text[start:end]
    content = content if quoted else content.rstrip()
    mapped = MappedText(content, ((0, start),), start)
    if quoted and quoted[1] == "'":
        return Word(content, mapped.offsets(0, len(content)), start, start + len(content))
    return expand_all(mapped, variables)


def _setting(source: SourceText, name: str, start: int, word: Word) -> Setting:
    return Setting(
        name=canonical_name(name),
        value=word.text,
        spelling=name,
        location=source.location(word.start, name),
        span=word.span(source),
        key_span=source.span(start, start + len(name)),
        is_known=word.is_known,
    )
