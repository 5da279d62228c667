"""Defaults that come with the model, and what the server may import."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llmpack.errors import ArtifactError
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.served_model import read_sampling_defaults
from tests.server.conftest import running
from tests.server.scripted import build_engine, build_model


def test_only_sampling_values_are_taken_from_the_generation_config(tmp_path: Path) -> None:
    assert read_sampling_defaults(tmp_path) == {}
    config = {"temperature": 0.6, "top_p": 0.9, "top_k": None, "eos_token_id": [1, 2], "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert read_sampling_defaults(tmp_path) == {"temperature": 0.6, "top_p": 0.9}


def test_a_generation_config_that_is_no_object_is_an_artifact_error(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"generation_config\.json"):
        read_sampling_defaults(tmp_path)


def test_defaults_stand_for_absent_and_null_fields(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> None:
    plain = build_model(scripted_directory, scripted_tokenizer)
    greedy = replace(plain, sampling_defaults={"temperature": 0.0})
    with running(build_engine(scripted_tokenizer), greedy) as server:

        def ask(**fields: float | None) -> str:
            body = {"model": "m", "prompt": "x", "max_tokens": 8} | fields
            return str(server.client.post("/v1/completions", json=body).json()["choices"][0]["text"])

        best = ask(temperature=0)
        assert ask() == ask(temperature=None) == best
        assert ask(temperature=1.5, seed=1) != best


def test_a_model_without_a_template_refuses_chat(scripted_directory: Path, scripted_tokenizer: Tokenizer) -> None:
    bare = replace(build_model(scripted_directory, scripted_tokenizer), chat_template=None)
    with running(build_engine(scripted_tokenizer), bare) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
        response = server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "chat_template_missing"


def test_the_server_needs_neither_the_compiler_nor_onnxruntime() -> None:
    code = (
        "import sys, llmpack.server.run;"
        "print(sorted({'torch', 'transformers', 'onnx', 'onnxruntime', 'onnxscript'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
