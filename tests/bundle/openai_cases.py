"""One OpenAI bundle for each server."""

from __future__ import annotations

from pathlib import Path

from llmpack.bundle.openai.options import OpenAIOptions
from tests.bundle.emitted import write_sample
from tests.validate.foreign_artifacts import write_rbln

CASES = {
    "openai-llmpack": OpenAIOptions("llmpack", model_name="sample"),
    "openai-vllm": OpenAIOptions("vllm", model_name="sample", model="org/tiny-llama", engine_release="0.13.0"),
    "openai-vllm-rbln": OpenAIOptions("vllm-rbln", model_name="sample"),
}


def artifact_for(case: str, folder: Path) -> Path:
    """What the case is emitted from."""
    return write_rbln(folder / "rbln") if case == "openai-vllm-rbln" else write_sample(folder / "artifact")
