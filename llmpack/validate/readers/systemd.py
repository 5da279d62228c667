"""systemd units: the server of `ExecStart=`.

Source: systemd.syntax(7), systemd.service(5) "Command lines", systemd.exec(5) `Environment=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from llmpack.validate.model import ServingConfig
from llmpack.validate.readers.server_command import Surroundings, environment_settings, read_command
from llmpack.validate.readers.shell import ShellCommand, assigned, split_commands
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import UNKNOWN, MappedText, Word

_DIRECTIVE = re.compile(r"^[ \t]*(Environment|ExecStart)[ \t]*=[ \t]*[-@:+!]*((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_SPECIFIER = re.compile(r"%[A-Za-z]")


def read_systemd_unit(source: SourceText) -> list[ServingConfig]:
    """One config per `ExecStart=` that starts a server.

    Raises:
        UnreadableConfig: A quote is not closed.
    """
    variables: dict[str, str] = {}
    environment: list[tuple[str, Word]] = []
    commands: list[ShellCommand] = []
    for name, mapped in _directives(source):
        if name == "Environment":
            for word in _split(source, mapped, variables):
                if pair := assigned(word):
                    environment.append(pair)
                    variables[pair[0]] = pair[1].text
        else:
            commands.append(ShellCommand(tuple(_split(source, mapped, variables))))
    around = Surroundings(source, "systemd", environment=environment_settings(source, environment))
    return [config for command in commands for config in read_command(command, around)]


def _directives(source: SourceText) -> Iterator[tuple[str, MappedText]]:
    for match in _DIRECTIVE.finditer(source.text):
        yield match[1], MappedText(match[2], ((0, match.start(2)),), match.start(2))


def _split(source: SourceText, mapped: MappedText, variables: dict[str, str]) -> list[Word]:
    """The words of a line; assignments are words like others."""
    commands = split_commands(source, mapped, variables)
    if not commands:  # nothing but assignments
        guarded = MappedText("_ " + mapped.text, ((0, mapped.segments[0][1] - 2),), mapped.anchor)
        commands = split_commands(source, guarded, variables)
        found = [word for command in commands for word in (*command.assignments, *command.words[1:])]
    else:
        found = [word for command in commands for word in (*command.assignments, *command.words)]
    return [_mark_specifiers(word) for word in found]


def _mark_specifiers(word: Word) -> Word:
    """The word with `%i` and its like, which systemd fills in when the unit starts, unknown."""
    offsets = list(word.offsets)
    for match in _SPECIFIER.finditer(word.text):
        offsets[match.start() : match.end()] = [UNKNOWN] * 2
    return replace(word, offsets=tuple(offsets))
