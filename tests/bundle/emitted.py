"""Artifacts to emit from, and bundles as text for golden files."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from llmpack import __version__
from llmpack.artifact.manifest import (
    LOGITS_PATH,
    MANIFEST_NAME,
    EngineName,
    Program,
    RuntimeRange,
    TensorSpec,
)
from llmpack.artifact.writer import ArtifactWriter
from tests.artifact.samples import fill, make_draft

GOLDEN = Path(__file__).parent / "golden"


def write_sample(target: Path, *, logits: bool = False, engine: EngineName = "onnxruntime") -> Path:
    """The sample artifact with what `validate` wants of a checkpoint's config, and with the program `logits` or not."""
    draft = make_draft()
    if engine == "inductor":
        runtime = RuntimeRange(name="torch", minimum="2.13.0", below="2.14")
        draft = msgspec.structs.replace(draft, engine=engine, runtime=runtime)
    with ArtifactWriter(target) as writer:
        fill(writer.path)
        (writer.path / "config.json").write_text('{"model_type": "llama", "eos_token_id": [2, 7]}', encoding="utf-8")
        if logits:
            (writer.path / LOGITS_PATH).write_bytes(b"logits program")
            draft = msgspec.structs.replace(draft, programs=[*draft.programs, make_logits_program(draft.vocab_size)])
        writer.commit(draft)
    return target


def make_logits_program(vocab_size: int) -> Program:
    ids = [TensorSpec(name=name, dtype="int64", shape=[-1, -1]) for name in ("input_ids", "attention_mask")]
    logits = TensorSpec(name="logits", dtype="float32", shape=[-1, -1, vocab_size])
    return Program(name="logits", kind="logits", bucket=64, path=LOGITS_PATH, inputs=ids, outputs=[logits])


def read_files(bundle: Path) -> dict[str, bytes]:
    """The bundle's files without the artifact's, whoever compiled it."""
    artifacts = [*bundle.rglob("artifact"), *(path.parent for path in bundle.rglob(MANIFEST_NAME))]
    files = (path for path in bundle.rglob("*") if path.is_file() and not any(map(path.is_relative_to, artifacts)))
    return {path.relative_to(bundle).as_posix(): path.read_bytes() for path in files}


def check_golden(bundle: Path, case: str) -> None:
    """`LLMPACK_WRITE_GOLDEN=1` writes the golden file anew; then read the difference."""
    files = sorted(read_files(bundle).items())
    listing = "".join(f"======== {path}\n{content.decode()}" for path, content in files)
    listing = listing.replace(str(bundle.parent), "/place").replace(__version__, "VERSION")
    listing = re.sub(r"build [0-9a-f]{12}", "build BUILD", listing)
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("LLMPACK_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(listing, encoding="utf-8")
    assert listing == golden.read_text(encoding="utf-8")


def check_emitting_twice(emit: Callable[[Path], object], folder: Path) -> set[str]:
    """Emits to the same place twice, under different umasks: equal bytes and modes. Returns the commands."""
    emit(folder / "bundle")
    (folder / "bundle").rename(folder / "first")
    old_umask = os.umask(0o077)
    try:
        emit(folder / "bundle")
    finally:
        os.umask(old_umask)
    first, second = (
        {path: ((folder / name / path).stat().st_mode, content) for path, content in read_files(folder / name).items()}
        for name in ("first", "bundle")
    )
    assert first == second
    return {path for path, (mode, _) in first.items() if mode & stat.S_IXUSR}


def check_shell_scripts(bundle: Path) -> None:
    """ShellCheck finds nothing in any script, not even a matter of style."""
    scripts = sorted(bundle.glob("*.sh"))
    assert scripts
    command = [str(Path(sys.executable).with_name("shellcheck")), "--severity=style", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
