"""What a machine must have before it may load an artifact's programs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec
import pytest

from llmpack.artifact import requirements
from llmpack.artifact.manifest import Manifest, RuntimeRange
from llmpack.artifact.requirements import check_runtime, find_runtime_problems
from llmpack.errors import ArtifactError
from tests.artifact.samples import make_draft


def needing(minimum: str, below: str, cpu_features: tuple[str, ...] = ()) -> Manifest:
    runtime = RuntimeRange(name="onnxruntime", minimum=minimum, below=below)
    return msgspec.structs.replace(make_draft(), runtime=runtime, required_cpu_features=list(cpu_features))


@pytest.mark.parametrize(
    ("installed", "fits"),
    [
        ("1.29.9", False),
        ("1.30.0", True),
        ("1.30.0.dev20260101", True),
        ("1.99", True),
        ("2.0", False),
        ("2.0rc1", False),
    ],
)
def test_version_range_is_half_open(monkeypatch: pytest.MonkeyPatch, installed: str, fits: bool) -> None:
    monkeypatch.setattr(requirements, "version", lambda _: installed)
    problems = find_runtime_problems(needing("1.30", "2"))
    assert (problems == []) is fits
    if not fits:
        assert problems == [f"onnxruntime {installed} is installed, needed: onnxruntime >= 1.30, < 2"]


def test_another_distribution_of_the_runtime_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.31.0"
        raise PackageNotFoundError(name)

    monkeypatch.setattr(requirements, "version", find)
    assert find_runtime_problems(needing("1.30", "2")) == []


def test_absent_runtime_and_features_are_all_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find(name: str) -> str:
        raise PackageNotFoundError(name)

    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 f16c\n")
    monkeypatch.setattr(requirements, "version", find)
    monkeypatch.setattr(requirements, "_CPUINFO", cpuinfo)
    with pytest.raises(ArtifactError) as caught:
        check_runtime(needing("1.30", "2", ("avx2", "avx512f", "amx_tile")))
    assert "onnxruntime is not installed" in str(caught.value)
    assert "lacks avx512f; this CPU lacks amx_tile" in str(caught.value)


def test_this_environment_loads_what_it_compiles() -> None:
    check_runtime(make_draft())
