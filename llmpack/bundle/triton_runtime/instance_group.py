"""How the instances of one model in one server find each other: the first one holds the engine, the others reach it.

Triton runs every instance in a process of its own and starts them in any order, also at once. All know the same facts
about their load, and these make the name of a Unix socket in Linux's abstract namespace: binding it succeeds for one
process only, it vanishes with that process however it ends, and there is no file to protect or to leave behind. Both
sides check that the other is the same user.

A model that is loaded again gets its new instances while the old ones still live. An engine therefore takes every
instance name once: a name it has already tells of another load, whose instances meet at the socket's next number.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import pickle
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

_RETRY_S = 0.01
_BACKLOG = 128
LENGTH = struct.Struct(">I")  # before every message


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """The instances that one load of a model has in one server.

    Attributes:
        key: The same for all of them, and for no others of this machine.
        instance_name: That of this instance.
        size: How many there are.
    """

    key: str
    instance_name: str
    size: int

    @classmethod
    def read(cls, args: Mapping[str, str], model_dir: Path) -> Self:
        """The group in Triton's `initialize` arguments."""
        groups = json.loads(args["model_config"]).get("instance_group", [])
        size = sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups)
        facts = [*_describe_server(), str(model_dir), args["model_version"], args["model_config"]]
        key = hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()[:32]
        return cls(key, args["model_instance_name"], size)

    def address(self, number: int) -> str:
        """The name of the group's socket; the leading NUL makes it abstract."""
        return f"\0llmpack-triton-{self.key}-{number}"


@dataclass(frozen=True, slots=True)
class Meeting:
    """What an instance found.

    Attributes:
        role: Whether it shall hold the engine or reach another's.
        socket: Listening for the others, or connected to the one that holds the engine.
    """

    role: Literal["host", "guest"]
    socket: socket.socket


def meet(group: InstanceGroup) -> Meeting:
    """The place of this instance in its group; waits while the instance that holds the engine loads it."""
    for number in itertools.count():
        while True:
            if (listener := _try_bind(group.address(number))) is not None:
                return Meeting("host", listener)
            answer, connection = _try_join(group.address(number), group.instance_name)
            if connection is not None:
                return Meeting("guest", connection)
            if answer == "refused":
                break
            time.sleep(_RETRY_S)  # the host is about to listen, or has just ended
    raise AssertionError("there is always another number")


def encode(message: object) -> bytes:
    """A message with its length. Pickle is safe here: both ends run as the same user."""
    content = pickle.dumps(message)
    return LENGTH.pack(len(content)) + content


def is_same_user(connection: Any) -> bool:
    """Whether the process at the other end runs as this one's user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def _describe_server() -> tuple[int, int, str]:
    """The process that started this one: pids repeat in containers and over time, with these two facts they do not."""
    parent = os.getppid()
    stat = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8", errors="replace")
    started = stat.rpartition(")")[2].split()[19]  # proc(5): field 22, counted after the command's name
    return Path("/proc/self/ns/pid").stat().st_ino, parent, started


def _try_bind(address: str) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return listener


def _try_join(address: str, name: str) -> tuple[Literal["refused", "gone"], socket.socket | None]:
    """A connection that the host has welcomed, or why there is none."""
    connection = socket.socket(socket.AF_UNIX)
    with suppress(ConnectionError, EOFError):
        connection.connect(address)
        if is_same_user(connection):
            connection.sendall(encode(name))
            if _receive(connection):
                return "gone", connection
        connection.close()
        return "refused", None
    connection.close()
    return "gone", None


def _receive(connection: socket.socket) -> Any:
    with connection.makefile("rb", buffering=0) as stream:
        (size,) = LENGTH.unpack(_read_exactly(stream, LENGTH.size))
        return pickle.loads(_read_exactly(stream, size))  # of the same user


def _read_exactly(stream: Any, size: int) -> bytes:
    content = b""
    while len(content) < size:
        if not (part := stream.read(size - len(content))):
            raise EOFError
        content += part
    return content
