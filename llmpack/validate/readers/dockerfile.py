"""Dockerfiles: the server that each stage's ENTRYPOINT and CMD start.

Source: Dockerfile reference: exec and shell form, ARG and ENV, "Understand how CMD and ENTRYPOINT interact".
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import Container, ServingConfig
from llmpack.validate.readers.dockerfile_text import plain_dockerfile
from llmpack.validate.readers.json_text import JsonNode, parse_json
from llmpack.validate.readers.server_command import (
    Surroundings,
    environment_settings,
    read_command,
    read_image_command,
)
from llmpack.validate.readers.shell import ShellCommand, assigned, split_commands
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import FROM_VARIABLE, MappedText, Word
from llmpack.validate.readers.yaml_words import expand_all

MAX_LINES = 10_000
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*\S+\s+")


@dataclass(slots=True)
class _Stage:
    """What the instructions of a stage have said so far."""

    image: Word
    image_text: str | None
    variables: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Word] = field(default_factory=dict)
    entrypoint: _Instruction | None = None
    command: _Instruction | None = None


@dataclass(frozen=True, slots=True)
class _Instruction:
    """An instruction's value.

    Attributes:
        exec_words: Of the exec form, None for the shell form.
    """

    mapped: MappedText
    exec_words: tuple[Word, ...] | None = None


def read_dockerfile(source: SourceText) -> list[ServingConfig]:
    """One config per stage that starts a server.

    Raises:
        UnreadableConfig: A quote is not closed.
    """
    source = source.with_text(plain_dockerfile(source.text))
    arguments: dict[str, str] = {}
    stages: list[_Stage] = []
    for name, mapped in _instructions(source):
        if name == "FROM":
            stages.append(_start_stage(mapped, arguments))
        elif not stages:
            if name == "ARG":
                _bind(source, mapped, arguments)
        else:
            _follow(source, stages[-1], name, mapped, arguments)
    return [config for stage in stages for config in _read_stage(source, stage)]


def _instructions(source: SourceText) -> list[tuple[str, MappedText]]:
    """Names and values; comment lines inside an instruction are left out of its value."""
    from dockerfile_parse import DockerfileParser

    if source.text.count("\n") > MAX_LINES:
        raise source.failure(f"more than {MAX_LINES} lines are no Dockerfile", 0)
    parser = DockerfileParser(fileobj=io.BytesIO(source.text.encode()), env_replace=False)
    return [
        (item["instruction"], _map_instruction(source, item["startline"], item["endline"]))
        for item in parser.structure
        if item["instruction"] != "COMMENT"
    ]


def _map_instruction(source: SourceText, first: int, last: int) -> MappedText:
    text, segments = "", []
    for line in range(first, last + 1):
        start, end = source.line_start(line), source.line_start(line + 1)
        content = source.text[start:end]
        if line == first and (match := _INSTRUCTION.match(content)):
            start, content = start + match.end(), content[match.end() :]
        elif content.lstrip().startswith("#"):
            continue
        segments.append((len(text), start))
        text += content
    return MappedText(text, tuple(segments), segments[0][1] if segments else source.line_start(first))


def _start_stage(mapped: MappedText, arguments: dict[str, str]) -> _Stage:
    match = _FROM.match(mapped.text)
    start, end = match.span(1) if match else (0, len(mapped.text))
    image = expand_all(
        MappedText(mapped.text[start:end], ((0, mapped.offset(start)),), mapped.offset(start)), arguments
    )
    return _Stage(image, image.text if image.is_known else None)


def _follow(source: SourceText, stage: _Stage, name: str, mapped: MappedText, arguments: dict[str, str]) -> None:
    if name == "ENTRYPOINT":
        stage.entrypoint = _read_instruction(source, mapped)
    elif name == "CMD":
        stage.command = _read_instruction(source, mapped)
    elif name == "ARG":
        _bind(source, mapped, stage.variables, arguments)
    elif name == "ENV":
        stage.environment.update(_bind(source, mapped, stage.variables))


def _bind(
    source: SourceText, mapped: MappedText, variables: dict[str, str], defaults: dict[str, str] | None = None
) -> dict[str, Word]:
    """Binds `NAME=value ...`, the old `NAME value`, or a bare `NAME` whose default stands before the first stage."""
    commands = split_commands(source, mapped, variables)
    words = [word for command in commands for word in (*command.assignments, *command.words)]
    words = words or _only_assignments(source, mapped, variables)
    bound = dict(pair for word in words if (pair := assigned(word)))
    if not bound and len(words) == 1 and defaults is not None:
        variables.update({words[0].text: defaults[words[0].text]} if words[0].text in defaults else {})
    elif not bound and len(words) > 1:
        bound = {words[0].text: words[1]}
    for name, word in bound.items():
        variables.pop(name, None)
        if word.is_known:
            variables[name] = word.text
    return bound


def _only_assignments(source: SourceText, mapped: MappedText, variables: dict[str, str]) -> list[Word]:
    """The words of a line that a shell would take for assignments only."""
    start = MappedText("_ " + mapped.text, tuple((at + 2, origin) for at, origin in mapped.segments), mapped.anchor)
    return [word for command in split_commands(source, start, variables) for word in command.words[1:]]


def _read_instruction(source: SourceText, mapped: MappedText) -> _Instruction:
    """The exec form if the value is a JSON list of texts, as Docker decides; else the shell form."""
    if mapped.text.lstrip().startswith("["):
        flat = SourceText(mapped.text.replace("\\\r\n", "   ").replace("\\\n", "  "))
        try:
            node = parse_json(flat)
        except UnreadableConfig:
            return _Instruction(mapped)
        words = [_json_word(mapped, item) for item in node.items or ()]
        return _Instruction(mapped, tuple(words))
    return _Instruction(mapped)


def _json_word(mapped: MappedText, item: JsonNode) -> Word:
    text = str(item.scalar)
    is_same = mapped.text[item.start + 1 : item.end - 1] == text
    offsets = mapped.offsets(item.start + 1, item.end - 1) if is_same else (FROM_VARIABLE,) * len(text)
    return Word(text, offsets, mapped.offset(item.start), mapped.offset(item.end - 1) + 1)


def _read_stage(source: SourceText, stage: _Stage) -> list[ServingConfig]:
    start = stage.entrypoint or stage.command
    around = _surroundings(source, stage)
    if start is None:
        return []
    if start.exec_words is None:  # shell form: what follows an ENTRYPOINT in shell form is ignored
        commands = split_commands(source, start.mapped, stage.variables)
        return [config for command in commands for config in read_command(command, around)]
    words = list(start.exec_words)
    if stage.entrypoint and stage.command:
        words += stage.command.exec_words or ()
    if stage.entrypoint is None and not words[0].text.startswith("-"):
        return read_command(ShellCommand(tuple(words)), around)
    return read_image_command(words, around)


def _surroundings(source: SourceText, stage: _Stage) -> Surroundings:
    place = source.location(stage.image.start)
    return Surroundings(
        source,
        "dockerfile",
        container=Container(stage.image_text, place, image_location=place, starts_container=False),
        environment=environment_settings(source, list(stage.environment.items())),
        is_containerised=True,
        anchor=place,
        variables=stage.variables,
    )
