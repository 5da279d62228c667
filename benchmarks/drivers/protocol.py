"""How `benchmarks/run.py` talks to the process of a peer: one JSON object per line, each answered by one.

    {"prepared": true}                                                        once, when the model is loaded
    {"concurrency": 8, "requests": [{"prompt_ids": [..], "max_tokens": 128}]} -->
    <-- {"requests": [{"sent_s": .., "arrivals_s": [..]}], "peak_memory_bytes": ..}

A driver is greedy and never ends a request early. Nothing but the standard library is imported here: every peer has an
environment of its own.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Job:
    """One request and when its tokens came, in seconds of `time.perf_counter`."""

    prompt_ids: list[int]
    max_tokens: int
    sent_s: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether it has all its tokens."""
        return len(self.arrivals_s) >= self.max_tokens

    def note_token(self) -> None:
        """One more token came now."""
        self.arrivals_s.append(time.perf_counter())


Run = Callable[[list[Job], int], None]


def answer_requests(run: Run) -> None:
    """Answers until stdin ends. `run` brings all jobs of a load to their end, so many at a time.

    What libraries print goes to stderr, so that stdout holds answers alone.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, {"prepared": True})
    for asked in _read_lines():
        jobs = [Job(**request) for request in asked["requests"]]
        sent_s = time.perf_counter()
        for job in jobs:
            job.sent_s = sent_s
        run(jobs, asked["concurrency"])
        times = [{"sent_s": job.sent_s, "arrivals_s": job.arrivals_s} for job in jobs]
        _say(answers, {"requests": times, "peak_memory_bytes": _read_peak_bytes()})


def _read_lines() -> Iterator[dict]:
    for line in sys.stdin:
        yield json.loads(line)


def _say(stream, value: dict) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def _read_peak_bytes() -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    return int(found[1]) * 1024
