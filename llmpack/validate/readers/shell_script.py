"""Shell scripts, and command lines given as text."""

from __future__ import annotations

from llmpack.validate.model import Origin, ServingConfig
from llmpack.validate.readers.server_command import Surroundings, read_command
from llmpack.validate.readers.shell import split_commands
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import map_whole


def read_shell_script(source: SourceText, origin: Origin = "shell") -> list[ServingConfig]:
    """One config per command that starts a server.

    Raises:
        UnreadableConfig: A quote is not closed.
    """
    around = Surroundings(source, origin)
    commands = split_commands(source, map_whole(source), {})
    return [config for command in commands for config in read_command(command, around)]


def read_command_text(text: str) -> list[ServingConfig]:
    """The configs of a command line that stands in no file.

    Raises:
        UnreadableConfig: A quote is not closed.
    """
    return read_shell_script(SourceText(text))
