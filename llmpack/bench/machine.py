"""Facts about this machine that belong beside every number measured on it."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from llmpack import __version__
from llmpack.bench.report import MachineFacts

_PACKAGES = ("numpy", "onnxruntime", "tokenizers", "uvicorn", "httptools")


def read_machine(num_threads: int, engine: str) -> MachineFacts:
    """The facts, with the versions of what has a part in the speed of `engine`."""
    packages = {*_PACKAGES, *({"torch"} if engine == "inductor" else ())}
    return MachineFacts(
        cpu=_read_cpu_name(),
        num_cpus=count_cpus(),
        num_threads=num_threads,
        memory_bytes=_read_memory_bytes(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={
            "llmpack": __version__,
            "python": platform.python_version(),
            **{name: found for name in sorted(packages) if (found := _find_version(name))},
        },
    )


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read_cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, flags=re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def count_cpus() -> int:
    """Logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
