"""What pip must install where an artifact is served."""

from __future__ import annotations

from llmpack import __version__
from llmpack.artifact.manifest import EngineName

INDUCTOR_EXTRA = "inductor"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where torch's build for CPUs is; PyPI's is ten times as large."""


def serving_requirement(engine: EngineName) -> str:
    """Returns llmpack at this version, with torch where the engine's libraries need it."""
    extra = f"[{INDUCTOR_EXTRA}]" if engine == "inductor" else ""
    return f"llmpack{extra}=={__version__}"


def torch_index_line(engine: EngineName) -> str:
    """Returns a line of a Dockerfile that makes pip find torch's build for CPUs; empty where no torch is needed."""
    return f"ENV PIP_EXTRA_INDEX_URL={TORCH_INDEX}\n" if engine == "inductor" else ""
