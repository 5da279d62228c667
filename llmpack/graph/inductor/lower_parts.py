"""Compiles the parts of a plan, several at a time, in processes of their own.

    caller --- plan, then names ---> worker: python -m llmpack.graph.inductor.lower_parts
           <-- a LoweredPart each ---

Inductor keeps global state and holds the interpreter's lock, so threads would not do. The workers are started here
rather than by multiprocessing, which would import the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO

from llmpack.errors import CompileError
from llmpack.graph.inductor.lower import LoweredPart, lower
from llmpack.graph.inductor.parts import list_parts
from llmpack.plan.plan import CompilePlan

_MODULE = "llmpack.graph.inductor.lower_parts"
_SHOWN_CHARACTERS = 2000


def lower_all(plan: CompilePlan, *, tied: bool, advance: Callable[[int], None]) -> dict[str, LoweredPart]:
    """Returns every part of the plan, compiled, by name; calls advance(1) after each, from any thread.

    Raises:
        CompileError: Inductor or the C++ compiler failed; the part and the end of what was said are named.
    """
    parts: SimpleQueue[str] = SimpleQueue()
    names = list(list_parts(plan, tied=tied))
    for name in sorted(names, key=lambda name: "block" not in name):  # The longest first: all workers end together.
        parts.put(name)
    workers = min(len(names), len(os.sched_getaffinity(0)))
    lowered: dict[str, LoweredPart] = {}
    with ThreadPoolExecutor(workers) as pool:
        for results in pool.map(lambda _: _drain(parts, (plan, tied), advance), range(workers)):
            lowered |= results
    return lowered


def _drain(
    parts: SimpleQueue[str], job: tuple[CompilePlan, bool], advance: Callable[[int], None]
) -> dict[str, LoweredPart]:
    """Returns the parts that one worker compiled until none was left."""
    lowered = {}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        ) as worker,
    ):
        assert worker.stdin is not None and worker.stdout is not None
        try:
            _send(worker.stdin, job)
            while True:
                name = parts.get_nowait()
                lowered[name] = _ask(worker.stdin, worker.stdout, name, said)
                advance(1)
        except Empty:
            worker.stdin.close()
        except BaseException:
            worker.kill()
            _clear(parts)
            raise
    return lowered


def _clear(parts: SimpleQueue[str]) -> None:
    """Leaves nothing for the other workers to do."""
    with suppress(Empty):
        while True:
            parts.get_nowait()


def _ask(stdin: IO[bytes], stdout: IO[bytes], name: str, said: IO[bytes]) -> LoweredPart:
    try:
        _send(stdin, name)
        answer = pickle.load(stdout)
    except (EOFError, BrokenPipeError) as error:
        said.seek(0)
        raise CompileError(
            f"compiling {name} failed",
            given=said.read().decode(errors="replace")[-_SHOWN_CHARACTERS:],
            next_step="If the C++ compiler is at fault choose another with CXX; --engine onnxruntime needs none.",
        ) from error
    if isinstance(answer, CompileError):
        raise answer
    assert isinstance(answer, LoweredPart)
    return answer


def _send(stream: IO[bytes], value: object) -> None:
    pickle.dump(value, stream)
    stream.flush()


def _work() -> None:
    """Answers names with compiled parts until stdin ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    plan, tied = pickle.load(sys.stdin.buffer)
    while True:
        try:
            name = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: LoweredPart | CompileError = lower(plan, name, tied=tied)
        except CompileError as error:
            answer = error
        _send(answers, answer)


if __name__ == "__main__":
    _work()
