"""`docker run ...`: the container that it starts and the command inside.

Source: `docker run --help` of Docker 27, and podman's, which takes the same flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmpack.validate.model import Container, Port
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import Word

_BOOLEAN = frozenset(
    [
        "--detach",
        "--disable-content-trust",
        "--help",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--rm",
        "--sig-proxy",
        "--tty",
    ]
)
_SHORT_BOOLEAN = re.compile(r"-[itdPq]+")
_SHORT_VALUED = re.compile(r"-[pevuwhlmca]")
_LONG_NAMES = {"-p": "--publish", "-e": "--env", "-v": "--volume", "-w": "--workdir"}
_PORT = re.compile(r"(?:(?:\d+(?:\.\d+){3}|localhost|\[[0-9a-fA-F:]*\]):)?(?:(\d+)?:)?(\d+)(?:/\w+)?")


@dataclass(frozen=True, slots=True)
class DockerRun:
    """A `docker run`.

    Attributes:
        image: The word of the image.
        words: What follows it.
        environment: `NAME=value` words.
        entrypoint: Of `--entrypoint`.
    """

    container: Container
    image: Word
    words: tuple[Word, ...]
    environment: tuple[Word, ...]
    entrypoint: Word | None


def find_docker_run(source: SourceText, words: Sequence[Word]) -> DockerRun | None:
    """The `docker run` that the words are, if they are one."""
    texts = [word.text for word in words[:3]]
    if len(words) < 3 or texts[0].rpartition("/")[2] not in {"docker", "podman", "nerdctl"}:
        return None
    start = 2 if texts[1] in {"run", "create"} else 3 if texts[1:] == ["container", "run"] else 0
    if not start:
        return None
    options, num_words = _options(words[start:])
    rest = words[start + num_words :]
    if not rest:
        return None
    return DockerRun(
        container=_container(source, words[0], rest[0], options),
        image=rest[0],
        words=tuple(rest[1:]),
        environment=tuple(value for name, value in options if name == "--env" and "=" in value.text),
        entrypoint=next((value for name, value in options if name == "--entrypoint"), None),
    )


def parse_port(source: SourceText, word: Word) -> Port | None:
    """The port of `8000:8000`, `127.0.0.1:80:8000/tcp` or `8000`; None for ranges and variables."""
    match = _PORT.fullmatch(word.text)
    if match is None:
        return None
    return Port(int(match[1]) if match[1] else None, int(match[2]), source.location(word.start))


def _options(words: Sequence[Word]) -> tuple[list[tuple[str, Word]], int]:
    """Options with their values, and how many words they take."""
    options: list[tuple[str, Word]] = []
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        word = words[at]
        at += 1
        name, equals, _ = word.text.partition("=")
        if name.startswith("--"):
            if equals:
                options.append((name, word.cut(len(name) + 1)))
            elif name not in _BOOLEAN and at < len(words):
                options.append((name, words[at]))
                at += 1
        elif (match := _SHORT_VALUED.match(word.text)) and not _SHORT_BOOLEAN.fullmatch(word.text):
            attached = word.cut(2) if len(word.text) > 2 else None
            if attached is None and at < len(words):
                attached = words[at]
                at += 1
            if attached is not None:
                options.append((_LONG_NAMES.get(match[0], match[0]), attached))
    return options, at


def _container(source: SourceText, start: Word, image: Word, options: list[tuple[str, Word]]) -> Container:
    shm = _last(options, "--shm-size")
    return Container(
        image=image.text if image.is_known else None,
        location=source.location(start.start),
        image_location=source.location(image.start),
        shm_size=shm.text if shm else None,
        shm_location=source.location(shm.start) if shm else None,
        is_host_ipc=any(name == "--ipc" and value.text == "host" for name, value in options),
        ulimits=tuple(_ulimits(options)),
        ports=tuple(_ports(source, options)),
    )


def _last(options: list[tuple[str, Word]], name: str) -> Word | None:
    found = [value for key, value in options if key == name]
    return found[-1] if found else None


def _ulimits(options: list[tuple[str, Word]]) -> Iterator[tuple[str, str]]:
    for name, value in options:
        if name == "--ulimit":
            key, _, limit = value.text.partition("=")
            yield key, limit


def _ports(source: SourceText, options: list[tuple[str, Word]]) -> Iterator[Port]:
    for name, value in options:
        port = parse_port(source, value) if name == "--publish" else None
        if port:
            yield port
