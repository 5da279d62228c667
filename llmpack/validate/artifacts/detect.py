"""Which compiler wrote a directory, and its facts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llmpack.artifact.integrity import Verify
from llmpack.artifact.manifest import MANIFEST_NAME
from llmpack.errors import ArtifactError
from llmpack.validate.artifacts import genai, mlc, neuron, openvino, rbln, tensorrt_llm
from llmpack.validate.artifacts.json_facts import read_object, table_at
from llmpack.validate.artifacts.llmpack import read_llmpack_facts
from llmpack.validate.facts import ArtifactFacts

_READERS: dict[str, Callable[[Path], ArtifactFacts]] = {
    rbln.FACT_FILE: rbln.read_rbln_facts,
    neuron.FACT_FILE: neuron.read_neuron_facts,
    genai.FACT_FILE: genai.read_genai_facts,
    mlc.FACT_FILE: mlc.read_mlc_facts,
}
KNOWN_FILES = (MANIFEST_NAME, *_READERS, openvino.FACT_FILE, tensorrt_llm.FACT_FILE)


def read_facts(path: Path, verify: Verify = "full") -> ArtifactFacts:
    """The facts of the artifact at `path`, a directory or one of the files that `KNOWN_FILES` names.

    Args:
        path: What `llmpack compile` or another compiler wrote.
        verify: For llmpack's artifacts: "full" hashes every file, "sizes" compares names and sizes.

    Raises:
        ArtifactError: There is no artifact of a known kind, or its facts cannot be read.
    """
    root = (path.parent if path.is_file() else path).absolute()
    if not root.is_dir():
        raise ArtifactError("no such artifact", where=str(path))
    reader = _find_reader(root, verify)
    if reader is None:
        raise ArtifactError("no compiled artifact", where=str(root), allowed="a directory with " + _choices())
    return reader(root)


def is_artifact(root: Path) -> bool:
    """Whether `root` holds the facts of an artifact of a known kind."""
    try:
        return root.is_dir() and _find_reader(root, "sizes") is not None
    except OSError:
        return False


def _find_reader(root: Path, verify: Verify) -> Callable[[Path], ArtifactFacts] | None:
    if (root / MANIFEST_NAME).is_file():
        return lambda found: read_llmpack_facts(found, verify)
    for name, reader in _READERS.items():
        if (root / name).is_file():
            return reader
    if openvino.is_openvino_graph(root / openvino.FACT_FILE):
        return openvino.read_openvino_facts
    return _find_config_reader(root / "config.json")


def _find_config_reader(file: Path) -> Callable[[Path], ArtifactFacts] | None:
    """Readers for artifacts that a `config.json` alone describes."""
    try:
        values = read_object(file)
    except ArtifactError:
        return None
    if table_at(values, "build_config") and table_at(values, "pretrained_config"):
        return tensorrt_llm.read_tensorrt_llm_facts
    return rbln.read_rbln_facts if "rbln_max_seq_len" in values else None


def _choices() -> str:
    return ", ".join(KNOWN_FILES[:-1]) + " or a TensorRT-LLM config.json"
