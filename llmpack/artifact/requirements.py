"""Whether this machine may load an artifact's programs; imports no runtime to find out."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import Version

from llmpack.artifact.manifest import Manifest
from llmpack.errors import ArtifactError

# Source: onnxruntime's build page; these distributions all install the module `onnxruntime`.
_DISTRIBUTIONS = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"),
    "torch": ("torch",),
}
_CPUINFO = Path("/proc/cpuinfo")


def find_runtime_problems(manifest: Manifest) -> list[str]:
    """One sentence per requirement that this environment does not meet: runtime version, CPU features."""
    return [*find_version_problems(manifest), *find_cpu_problems(manifest)]


def check_runtime(manifest: Manifest) -> None:
    """Passes when this environment may load the programs.

    Raises:
        ArtifactError: It may not; all reasons are named.
    """
    problems = find_runtime_problems(manifest)
    if problems:
        raise ArtifactError(
            "this environment cannot load the artifact: " + "; ".join(problems),
            next_step="Install what is named, or compile the model again here.",
        )


def find_version_problems(manifest: Manifest) -> list[str]:
    """At most one sentence: the installed runtime is missing or outside the artifact's range."""
    runtime = manifest.runtime
    wanted = f"{runtime.name} >= {runtime.minimum}, < {runtime.below}"
    installed = _find_version(_DISTRIBUTIONS[runtime.name])
    if installed is None:
        return [f"{runtime.name} is not installed, needed: {wanted}"]
    # A nightly of the minimum counts as the minimum: compare the released part only.
    release = Version(Version(installed).base_version)
    if Version(runtime.minimum) <= release < Version(runtime.below):
        return []
    return [f"{runtime.name} {installed} is installed, needed: {wanted}"]


def _find_version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def find_cpu_problems(manifest: Manifest) -> list[str]:
    """One sentence per CPU feature that this machine lacks."""
    if not manifest.required_cpu_features:
        return []
    present = read_cpu_features()
    return [f"this CPU lacks {name}" for name in manifest.required_cpu_features if name not in present]


def read_cpu_features() -> set[str]:
    """Flag names of the first processor; empty where the system does not list them."""
    if not _CPUINFO.exists():
        return set()
    for line in _CPUINFO.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
