"""Finds the server in a command line and reads its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from llmpack.validate.model import Container, Location, Origin, ServingConfig, Setting, Target
from llmpack.validate.readers.docker_run import DockerRun, find_docker_run
from llmpack.validate.readers.engine_targets import resolve_engine_target
from llmpack.validate.readers.flags import read_flags
from llmpack.validate.readers.shell import ShellCommand, assigned, split_commands
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import Word, as_mapped

# Anything that mentions a server at all; a cheap look before a whole file is taken apart.
MENTIONS_SERVER = re.compile(r"""vllm|llmpack[\s"',-]+serve|tritonserver""")
_API_SERVERS = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"})
_VLLM_IMAGE = re.compile(r"(?:^|/)vllm-(?:openai|cpu-release-repo)(?::|@|$)|(?:^|/)vllm/vllm-openai")
_SERVER_IMAGE = re.compile(r"tritonserver|vllm")
_VLLM_TAG = re.compile(r"vllm-openai:v?(\d+(?:\.\w+)+)")
_PINNED = re.compile(r"\b(vllm(?:[-_]rbln)?)==(\d[\w.]*)")
_NOT_STARTERS = frozenset(
    {"echo", "printf", "pip", "pip3", "apt", "apt-get", "grep", "which", "pkill", "git", "cd", "uv"}
)
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a command stands.

    Attributes:
        container: What it runs in, if the file says so.
        environment: Variables that the file sets for it.
        is_containerised: Paths are a container's.
        anchor: Location of a command that is not written out, or None.
        variables: Values that a script in the command may use.
    """

    source: SourceText
    origin: Origin
    container: Container | None = None
    environment: tuple[Setting, ...] = ()
    is_containerised: bool = False
    anchor: Location | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Server:
    """The words from the server's name on; `words[0]` is the last word of the name."""

    target: Target
    words: Sequence[Word]
    takes_model: bool


def read_command(command: ShellCommand, around: Surroundings) -> list[ServingConfig]:
    """The configs of the servers that one command starts, itself or in the script that it hands to a shell."""
    script = _inner_script(command.words)
    if script is not None:
        return [config for inner in _split_inner(script, around) for config in read_command(inner, around)]
    config = _read_plain_command(command, around)
    return [config] if config else []


def read_image_command(words: Sequence[Word], around: Surroundings) -> list[ServingConfig]:
    """The configs of a container's command; without one, of the server that its image starts by itself.

    A server's image whose command is not known gives a config without settings that says what the container is.
    """
    words = _without_prompt(words)
    script = _inner_script(words)
    if script is not None and (found := _read_inner(script, around)):
        return found
    server = _find_server(words) or _image_server(words, around)
    return [_config(server, words[0] if words else None, around)] if server else []


def _read_inner(script: Word, around: Surroundings) -> list[ServingConfig]:
    return [config for inner in _split_inner(script, around) for config in read_command(inner, around)]


def _split_inner(script: Word, around: Surroundings) -> list[ShellCommand]:
    return split_commands(
        around.source, as_mapped(script), around.variables, is_kubernetes=around.origin == "kubernetes"
    )


def _image_server(words: Sequence[Word], around: Surroundings) -> _Server | None:
    image = around.container.image if around.container else None
    if not image or not _SERVER_IMAGE.search(image):
        return None
    if _VLLM_IMAGE.search(image) and (not words or words[0].text.startswith("-")):
        start = words[0].start if words else 0
        return _Server("vllm", [Word("", (), start, start), *words], takes_model=True)
    return _Server("unknown", [], takes_model=False)


def _read_plain_command(command: ShellCommand, around: Surroundings) -> ServingConfig | None:
    environment = around.environment + tuple(_environment(around.source, command.assignments))
    around = replace(around, environment=environment)
    words = _without_prompt(command.words)
    run = find_docker_run(around.source, words)
    if run is not None:
        return _read_docker_run(run, around)
    server = _find_server(words)
    return _config(server, words[0], around) if server else None


def _inner_script(words: Sequence[Word]) -> Word | None:
    """The script of `sh -c SCRIPT`."""
    words = [word for word in words if word.text not in {"exec", "tini", "/usr/bin/tini", "dumb-init", "--"}]
    if len(words) < 3 or words[0].text.rpartition("/")[2] not in _SHELLS:
        return None
    for flag, script in pairwise(words[1:]):
        if flag.text.startswith("-") and "c" in flag.text[1:]:
            return script
    return None


def pinned_release(text: str, target: Target) -> str | None:
    """The version of `pip install vllm==0.6.3`."""
    if target not in {"vllm", "vllm-rbln"}:
        return None
    releases = {name.replace("_", "-"): version for name, version in _PINNED.findall(text)}
    return releases.get(target)


def environment_settings(source: SourceText, pairs: Sequence[tuple[str, Word]]) -> tuple[Setting, ...]:
    """Variables as settings, named as written."""
    return tuple(
        Setting(name, value.text, name, source.location(value.start, name), value.span(source), is_known=value.is_known)
        for name, value in pairs
    )


def _read_docker_run(run: DockerRun, around: Surroundings) -> ServingConfig | None:
    environment = around.environment + tuple(_environment(around.source, run.environment))
    inside = replace(around, container=run.container, environment=environment, is_containerised=True)
    words = (run.entrypoint, *run.words) if run.entrypoint else run.words
    configs = read_image_command(words, inside)
    return replace(configs[0], location=run.container.location) if configs else None


def _environment(source: SourceText, words: Sequence[Word]) -> tuple[Setting, ...]:
    return environment_settings(source, [pair for word in words if (pair := assigned(word))])


def _without_prompt(words: Sequence[Word]) -> Sequence[Word]:
    """The words behind a documentation's prompt and `sudo` with its flags."""
    if len(words) > 1 and words[0].text in {"$", "#", "%", ">"}:
        words = words[1:]
    if len(words) > 1 and words[0].text == "sudo":
        words = words[1:]
        while len(words) > 1 and words[0].text.startswith("-"):
            words = words[1:]
    return words


def _find_server(words: Sequence[Word]) -> _Server | None:
    texts = [word.text for word in words]
    if not texts or texts[0].rpartition("/")[2] in _NOT_STARTERS - ({"uv"} if texts[1:2] == ["run"] else set()):
        return None
    for index, text in enumerate(texts):
        program, following = text.rpartition("/")[2], texts[index + 1 : index + 2]
        if program in {"vllm", "llmpack"} and following == ["serve"]:
            return _Server("vllm" if program == "vllm" else "llmpack", words[index + 1 :], takes_model=True)
        if program == "tritonserver":
            return _Server("unknown", words[index:], takes_model=False)
        if _PYTHON.fullmatch(program) and (found := _find_module(words[index:], texts[index:])):
            return found
    return None


def _find_module(words: Sequence[Word], texts: list[str]) -> _Server | None:
    """The server of `python -m MODULE`."""
    if "-m" not in texts[1:-1]:
        return None
    at = texts.index("-m") + 1
    if texts[at] in _API_SERVERS:
        return _Server("vllm", words[at:], takes_model=False)
    if texts[at] in {"llmpack", "vllm"} and texts[at + 1 : at + 2] == ["serve"]:
        return _Server("llmpack" if texts[at] == "llmpack" else "vllm", words[at + 1 :], takes_model=True)
    return None


def _config(server: _Server, first: Word | None, around: Surroundings) -> ServingConfig:
    settings = read_flags(around.source, server.words, takes_model=server.takes_model) if server.words else ()
    target = resolve_engine_target(settings, server.target)
    place = around.source.location(first.start) if first else around.anchor or around.source.location(0)
    return ServingConfig(
        kind="command-line",
        origin=around.origin,
        path=around.source.path,
        target=target,
        location=place,
        settings=settings,
        environment=around.environment,
        container=around.container,
        is_containerised=around.is_containerised,
        engine_release=_release(around, target),
    )


def _release(around: Surroundings, target: Target) -> str | None:
    image = around.container.image if around.container else None
    tag = _VLLM_TAG.search(image or "")
    return tag[1] if tag and target == "vllm" else pinned_release(around.source.text, target)
