from __future__ import annotations

import pytest

from llmpack.runtime.tokenizer import Tokenizer
from tests.server.scripted import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """That of the scripted model."""
    directory = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(directory)
    return Tokenizer.from_directory(directory)
