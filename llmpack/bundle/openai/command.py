"""The command that starts a server on an artifact, in the words of shells, JSON, YAML and systemd."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from llmpack import __version__
from llmpack.bundle.vllm_engine import VllmEngine
from llmpack.server.options import API_KEY_VARIABLE, ServerOptions
from llmpack.validate.vocabulary.engine_vocabulary import find_vocabulary

DEFAULTS = ServerOptions()
SHUTDOWN_TIMEOUT_S = int(DEFAULTS.shutdown_timeout_s)

_PLAIN_SYSTEMD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """A server's command line without what depends on the place where it runs.

    Attributes:
        engine: `llmpack`, `vllm` or `vllm-rbln`.
        release: Its version.
        program: The first words.
        arguments: Flags and values in order. Without a flag the value stands alone; without a value it is the
            artifact's directory, which every place calls otherwise.
        api_key_variable: Variable that the server takes its API key from.
        variables: Prefix of the variables that the launch script reads.
        requirement: What pip installs: `vllm==0.13.0`.
    """

    engine: str
    release: str
    program: tuple[str, ...]
    arguments: tuple[tuple[str | None, str | None], ...]
    api_key_variable: str
    variables: str
    requirement: str

    def groups(self, place: Place, quote: Callable[[str], str]) -> list[list[str]]:
        """The words by argument, the program first; the place's own are quoted already."""
        groups = [[quote(word) for word in self.program]]
        for flag, value in self.arguments:
            text = place.artifact if value is None else quote(value)
            groups.append([text] if flag is None else [flag, text])
        return [*groups, ["--host", place.host], ["--port", place.port]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs, quoted as that place wants it.

    Attributes:
        artifact: What the artifact is called there.
        host: Address to listen on.
        port: Port to listen on.
    """

    artifact: str
    host: str
    port: str


def build_llmpack_command(model_name: str, requirement: str) -> ServerCommand:
    """`llmpack serve` with all that was compiled, which is what it serves unless told otherwise."""
    return ServerCommand(
        engine="llmpack",
        release=__version__,
        program=("llmpack", "serve"),
        arguments=(
            (None, None),
            ("--served-model-name", model_name),
            ("--shutdown-timeout", str(SHUTDOWN_TIMEOUT_S)),
        ),
        api_key_variable=API_KEY_VARIABLE,
        variables="LLMPACK",
        requirement=requirement,
    )


def build_vllm_command(model_name: str, engine: VllmEngine) -> ServerCommand:
    """The API server of vLLM with the engine's arguments and with what else its release knows.

    Source: every release has `python -m vllm.entrypoints.openai.api_server`; `vllm serve` came with 0.5.
    `VLLM_PORT` and `VLLM_HOST_IP` are of vLLM's own processes (vllm/envs.py), so the launch script reads others.
    """
    found = find_vocabulary(engine.name, engine.release)
    assert found is not None, "both engines have a vocabulary"
    vocabulary, known_release = found
    wished = engine.arguments | {"served_model_name": model_name, "shutdown_timeout": SHUTDOWN_TIMEOUT_S}
    release = engine.release or vocabulary.releases[-1]
    return ServerCommand(
        engine=engine.name,
        release=release,
        program=("python3", "-m", "vllm.entrypoints.openai.api_server"),
        arguments=tuple(
            ("--" + name.replace("_", "-"), None if name in engine.artifact_arguments else str(value))
            for name, value in wished.items()
            if vocabulary.knows(name, "flags", known_release)
        ),
        api_key_variable="VLLM_API_KEY",
        variables="SERVE",
        requirement=f"{engine.name}=={release}",
    )


def shell_command(command: ServerCommand, artifact: str) -> str:
    """For bash: one argument a line; `artifact` is quoted already."""
    place = Place(artifact, '"$host"', '"$port"')
    return " \\\n    ".join(" ".join(group) for group in command.groups(place, shlex.quote))


def exec_words(command: ServerCommand, artifact: str) -> list[str]:
    """For containers: `--flag=value`, listening on all addresses."""
    groups = command.groups(Place(artifact, "0.0.0.0", str(DEFAULTS.port)), str)
    return [*groups[0], *("=".join(group) for group in groups[1:])]


def systemd_command(command: ServerCommand, artifact: str) -> str:
    """For `ExecStart=`: `env` looks the program up in the unit's PATH."""
    place = Place(quote_systemd(artifact), f"${{{command.variables}_HOST}}", f"${{{command.variables}_PORT}}")
    groups = command.groups(place, quote_systemd)
    return " \\\n    ".join(" ".join(group) for group in [["/usr/bin/env", *groups[0]], *groups[1:]])


def quote_systemd(text: str) -> str:
    """One word of a command line; Source: systemd.service(5) "Command lines", systemd.unit(5) "Specifiers"."""
    text = text.replace("%", "%%").replace("$", "$$")
    if _PLAIN_SYSTEMD.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
