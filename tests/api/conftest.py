"""Engines whose greedy continuation of any prompt that ends in " go" is the script, on paper and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmpack import LLM, AsyncLLMEngine
from llmpack.runtime.tokenizer import Tokenizer
from tests.e2e.serving import compile_artifact
from tests.server.scripted import build_engine, build_model, write_tokenizer
from tests.server.scripted_checkpoint import write_checkpoint

Build = Callable[..., AsyncLLMEngine]


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scripted")
    write_tokenizer(directory)
    return directory


@pytest.fixture(scope="session")
def tokenizer(tokenizer_directory: Path) -> Tokenizer:
    return Tokenizer.from_directory(tokenizer_directory)


@pytest.fixture
def build(tokenizer_directory: Path, tokenizer: Tokenizer) -> Iterator[Build]:
    """Makes engines on paper and stops them at the end."""
    with ExitStack() as stack:

        def make(*, seed: int | None = None, batch_size: int = 4, step_time_s: float = 0.0) -> AsyncLLMEngine:
            model = build_model(tokenizer_directory, tokenizer, batch_size=batch_size)
            runner = build_engine(tokenizer, batch_size=batch_size, step_time_s=step_time_s, max_waiting=1000)
            engine = AsyncLLMEngine(runner, model, seed=seed)
            stack.callback(engine.shutdown)
            return engine

        yield make


@pytest.fixture
def engine(build: Build) -> AsyncLLMEngine:
    return build()


@pytest.fixture
def llm(engine: AsyncLLMEngine) -> LLM:
    return LLM.from_engine(engine)


@pytest.fixture(scope="session")
def compiled_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripted checkpoint as an artifact of 4 slots of 4096 tokens."""
    checkpoint = tmp_path_factory.mktemp("org") / "scripted"
    checkpoint.mkdir()
    write_checkpoint(checkpoint, max_seq_len=4096)
    options = ("--max-seq-len", "4096", "--batch-size", "4", "--no-proof")
    return compile_artifact(checkpoint, tmp_path_factory.mktemp("artifact") / "compiled", *options)
