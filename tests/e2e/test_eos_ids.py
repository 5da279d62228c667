"""Every end token that a checkpoint's files name ends a served answer."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from llmpack.runtime.tokenizer import Tokenizer
from tests.e2e.serving import compile_artifact, serving
from tests.server.scripted_checkpoint import write_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.compile, pytest.mark.e2e, pytest.mark.server]


def test_a_list_in_the_generation_config_counts_whole(tmp_path: Path) -> None:
    """vllm 4180, 4182: only the first id of the list stopped."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write_checkpoint(checkpoint)
    (here,) = Tokenizer.from_directory(checkpoint).encode(" here", add_special_tokens=False)
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, here]}), encoding="utf-8")
    shape = ("--max-seq-len", "64", "--batch-size", "1", "--prefill-buckets", "16", "--no-proof")
    artifact = compile_artifact(checkpoint, tmp_path / "artifact", *shape)
    body = {"model": "m", "prompt": "say go", "temperature": 0, "max_tokens": 12}
    with serving(artifact, "--served-model-name", "m") as server:
        choices = [
            httpx.post(server.url + "/v1/completions", json=body | fields).json()["choices"][0]
            for fields in ({}, {"ignore_eos": True})
        ]
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [
        (": one, two STOP", "stop"),
        (": one, two STOP here😀 café END", "length"),
    ]
    assert "stop_reason" not in choices[0]
