"""Which engine reads a list of settings."""

from __future__ import annotations

from collections.abc import Sequence

from llmpack.validate.model import Setting, Target


def resolve_engine_target(settings: Sequence[Setting], started: Target) -> Target:
    """vllm-rbln if vLLM is started with what only its RBLN plugin knows; else what is `started`."""
    if started != "vllm":
        return started
    for setting in settings:
        if setting.name == "compiled_model_dir" or (setting.name == "device" and setting.value == "rbln"):
            return "vllm-rbln"
    return started
