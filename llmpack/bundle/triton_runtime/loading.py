"""The engine behind a Triton model, from the artifact that its config names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmpack.artifact.reader import open_artifact
from llmpack.bundle.triton_runtime.settings import ModelSettings
from llmpack.errors import LlmpackError
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.load import load_engine
from llmpack.runtime.resolve import ModelLimits


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready.

    Attributes:
        engine: Not started.
        limits: Vocabulary and context.
        settings: What the config says.
    """

    engine: Engine
    limits: ModelLimits
    settings: ModelSettings


def load_model(pb_utils: Any, args: Mapping[str, str]) -> LoadedModel:
    """The engine over the artifact that the config names, every file of which has been hashed.

    Raises:
        pb_utils.TritonModelException: With llmpack's own message, which names the file at fault. Triton answers the
            request to load with it.
    """
    try:
        settings = ModelSettings.read(args, Path(pb_utils.get_model_dir()))
        artifact = open_artifact(settings.artifact, "full")
        options = EngineOptions(max_waiting=settings.max_waiting)
        engine = load_engine(artifact, options, num_threads=settings.num_threads)
    except LlmpackError as error:
        raise pb_utils.TritonModelException(str(error)) from error
    manifest = artifact.manifest
    limits = ModelLimits(
        vocab_size=manifest.vocab_size,
        max_seq_len=manifest.max_seq_len,
        eos_token_ids=frozenset(manifest.special_tokens.eos_token_ids),
    )
    return LoadedModel(engine, limits, settings)
