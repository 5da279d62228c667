"""llmpack compiles Hugging Face causal language models to fixed-shape artifacts, proves them and serves them.

Importing this package loads nothing heavy: each public name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmpack.artifact.manifest import Manifest as Manifest
    from llmpack.artifact.reader import Artifact as Artifact
    from llmpack.artifact.reader import open_artifact as open_artifact
    from llmpack.artifact.reader import read_manifest as read_manifest
    from llmpack.compiler.compile import compile_model as compile_model
    from llmpack.errors import LlmpackError as LlmpackError
    from llmpack.plan.options import CompileOptions as CompileOptions
    from llmpack.runtime.sampling_params import SamplingParams as SamplingParams

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "llmpack.artifact.reader",
    "CompileOptions": "llmpack.plan.options",
    "LlmpackError": "llmpack.errors",
    "Manifest": "llmpack.artifact.manifest",
    "SamplingParams": "llmpack.runtime.sampling_params",
    "compile_model": "llmpack.compiler.compile",
    "open_artifact": "llmpack.artifact.reader",
    "read_manifest": "llmpack.artifact.reader",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604 - names are looked up lazily


def __getattr__(name: str) -> object:
    """The public name, imported from its module on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'llmpack' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
