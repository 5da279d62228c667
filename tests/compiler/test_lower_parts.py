"""What a compile says when the C++ compiler fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.errors import CompileError
from llmpack.plan.engine import find_obstacles
from llmpack.plan.options import CompileOptions

pytestmark = [pytest.mark.slow, pytest.mark.compile]

STORIES = Path(__file__).parents[1] / "data" / "stories260K"


@pytest.mark.skipif(bool(find_obstacles()), reason="the inductor engine needs g++ and AVX-512")
def test_a_failing_compiler_is_quoted_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmpack.compiler.compile import compile_model

    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho no space left on the moon >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    options = CompileOptions(model=str(STORIES), output=tmp_path / "out", max_seq_len=64, engine="inductor")
    with pytest.raises(CompileError, match=r"(?s)compiling .* failed.*choose another with CXX"):
        compile_model(options)
    assert not (tmp_path / "out").exists()
