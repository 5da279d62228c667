"""llmpack compiles Hugging Face causal language models to fixed-shape artifacts, proves them and serves them.

Importing this package loads nothing heavy: each public name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmpack.api.async_llm_engine import AsyncLLMEngine as AsyncLLMEngine
    from llmpack.api.engine_args import AsyncEngineArgs as AsyncEngineArgs
    from llmpack.api.llm import LLM as LLM
    from llmpack.api.outputs import CompletionOutput as CompletionOutput
    from llmpack.api.outputs import Logprob as Logprob
    from llmpack.api.outputs import RequestOutput as RequestOutput
    from llmpack.api.prompts import TextPrompt as TextPrompt
    from llmpack.api.prompts import TokensPrompt as TokensPrompt
    from llmpack.artifact.manifest import Manifest as Manifest
    from llmpack.artifact.reader import Artifact as Artifact
    from llmpack.artifact.reader import open_artifact as open_artifact
    from llmpack.artifact.reader import read_manifest as read_manifest
    from llmpack.compiler.compile import compile_model as compile_model
    from llmpack.errors import LlmpackError as LlmpackError
    from llmpack.plan.options import CompileOptions as CompileOptions
    from llmpack.runtime.sampling_params import RequestOutputKind as RequestOutputKind
    from llmpack.runtime.sampling_params import SamplingParams as SamplingParams

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "llmpack.artifact.reader",
    "AsyncEngineArgs": "llmpack.api.engine_args",
    "AsyncLLMEngine": "llmpack.api.async_llm_engine",
    "CompileOptions": "llmpack.plan.options",
    "CompletionOutput": "llmpack.api.outputs",
    "LLM": "llmpack.api.llm",
    "LlmpackError": "llmpack.errors",
    "Logprob": "llmpack.api.outputs",
    "Manifest": "llmpack.artifact.manifest",
    "RequestOutput": "llmpack.api.outputs",
    "RequestOutputKind": "llmpack.runtime.sampling_params",
    "SamplingParams": "llmpack.runtime.sampling_params",
    "TextPrompt": "llmpack.api.prompts",
    "TokensPrompt": "llmpack.api.prompts",
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
