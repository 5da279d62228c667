"""The README is true: its commands run, its tables list what there is.

A code block after `<!-- run -->` is run in order with the others; `server` is kept running for the `client` blocks.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is None without a run comment before it."""

    mark: str | None
    language: str
    code: str


BLOCKS = [
    Block(mark and (kind or "plain"), language, code)
    for mark, kind, language, code in re.findall(
        r"(<!-- run(?:: (\w+))? -->\n)?^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL
    )
]


def test_blocks_are_found() -> None:
    assert len(BLOCKS) == README.count("\n```") / 2
    assert {block.mark for block in BLOCKS if block.mark} == {"plain", "server", "client"}


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.mark and block.language], ids=str)
def test_commands_that_are_not_run_here_exist(block: Block) -> None:
    assert block.language == "bash"
    for line in block.code.splitlines():
        command = line.partition("#")[0].split()
        if command[:2] == ["pip", "install"]:
            assert command[2].strip("'") in (".", ".[compile]", ".[inductor]")
        else:
            assert command[0] == "bash"
            assert os.access(ROOT / command[1], os.X_OK)


def test_architecture_table_lists_every_row() -> None:
    from llmpack.architectures.rows import ROWS

    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", README, flags=re.MULTILINE))
    architectures = {name: listed[name] for name in listed.keys() & ROWS.keys()}
    assert architectures == {row.model_type: row.transformers_class for row in ROWS.values()}


def test_package_table_lists_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "llmpack").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE))


def test_packages_import_only_from_those_before_them() -> None:
    """The order of the package table is the direction in which data flows."""
    order = re.findall(r"^\| `(\w+)` \|", README.partition("## Packages")[2], flags=re.MULTILINE)
    for package in order:
        allowed = {*order[: order.index(package) + 1], "errors"}
        for path in (ROOT / "llmpack" / package).rglob("*.py"):
            imported = set(re.findall(r"^\s*(?:from|import) llmpack\.(\w+)", path.read_text(), flags=re.MULTILINE))
            assert imported <= allowed, f"{path.relative_to(ROOT)} imports {sorted(imported - allowed)}"


def test_local_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


@dataclass
class Reader:
    """Someone who follows the README in a directory of their own, with a free port for 8000."""

    directory: Path
    port: int
    server: subprocess.Popen[str] | None = None

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def follow(self, block: Block) -> str:
        code = block.code.replace("8000", str(self.port))
        command = ["bash", "-euc", code] if block.language == "bash" else [sys.executable, "-c", code]
        if block.mark == "server":
            command[-1] = f"exec {code}"
            self.server = subprocess.Popen(
                command, cwd=self.directory, env=self.environment(), stdout=subprocess.PIPE, text=True
            )
            assert self.server.stdout is not None
            return self.server.stdout.readline()
        run = subprocess.run(
            command, cwd=self.directory, env=self.environment(), capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    for name in ("tests", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reader = Reader(tmp_path, port)
    yield reader
    if reader.server is not None:
        with reader.server:
            reader.server.kill()


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.server
def test_every_command_runs(reader: Reader) -> None:
    outputs = [reader.follow(block) for block in BLOCKS if block.mark]
    assert all(outputs)
    assert f"http://127.0.0.1:{reader.port}\n" in outputs
    story = next(
        output for block, output in zip([b for b in BLOCKS if b.mark], outputs, strict=True) if block.mark == "client"
    )
    assert len(story.split()) > 5
    assert reader.server is not None
    reader.server.send_signal(signal.SIGTERM)
    assert reader.server.wait(timeout=30) == 0
