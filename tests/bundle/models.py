"""The scripted model as Triton's runtime loads it, over a runner on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmpack.bundle.triton_runtime.loading import LoadedModel
from llmpack.bundle.triton_runtime.settings import ModelSettings
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.resolve import ModelLimits
from llmpack.runtime.runner import RunnerShape
from llmpack.runtime.tokenizer import Tokenizer
from tests.server.scripted import script_of


def load_scripted(
    tokenizer: Tokenizer, *, step_time_s: float = 0.0, max_waiting: int = 256, **settings: Any
) -> LoadedModel:
    shape = RunnerShape(4, 512, tokenizer.vocab_size, (16, 64), (1, 4))
    runner = PaperRunner(shape, script_of(tokenizer), step_time_s=step_time_s)
    engine = Engine(runner, tokenizer, EngineOptions(max_waiting=max_waiting))
    limits = ModelLimits(tokenizer.vocab_size, 512, frozenset({tokenizer.eos_token_id or 0}))
    return LoadedModel(engine, limits, ModelSettings("scripted", "1", Path("unused"), **settings))
