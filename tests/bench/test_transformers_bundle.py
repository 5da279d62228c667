"""What llmpack is measured beside: the bundle that serves transformers behind Triton."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from llmpack.artifact.manifest import Manifest
from llmpack.artifact.reader import read_manifest
from llmpack.bench.transformers_bundle import MODEL_NAME, emit_transformers
from llmpack.errors import UsageError
from tests.artifact.samples import write_sample
from tests.bundle.fake_triton import FakeTriton, Tensor

STORIES = Path(__file__).parent.parent / "data" / "stories260K"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Of an artifact that might have been compiled from stories260K."""
    write_sample(tmp_path / "model")
    config = json.loads((STORIES / "config.json").read_bytes())
    names = ("hidden_size", "num_hidden_layers", "vocab_size")
    return structs.replace(read_manifest(tmp_path / "model"), **{name: config[name] for name in names})


def test_the_bundle(manifest: Manifest, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    emit_transformers(STORIES, bundle, manifest, rows=8, num_instances=2)
    config = (bundle / MODEL_NAME / "config.pbtxt").read_text()
    assert "max_batch_size: 8" in config
    assert "max_queue_delay_microseconds" in config
    assert "count: 2 kind: KIND_CPU" in config
    subprocess.run(["bash", "-n", str(bundle / "serve.sh")], check=True)


def test_one_by_one_is_without_dynamic_batching(manifest: Manifest, tmp_path: Path) -> None:
    emit_transformers(STORIES, tmp_path / "bundle", manifest, rows=1, num_instances=1)
    config = (tmp_path / "bundle" / MODEL_NAME / "config.pbtxt").read_text()
    assert "max_batch_size: 1" in config
    assert "dynamic_batching" not in config


def test_another_model_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    other = structs.replace(manifest, vocab_size=7)
    with pytest.raises(UsageError, match=r"not the model that was compiled.*vocab_size"):
        emit_transformers(STORIES, tmp_path / "bundle", other, rows=1, num_instances=1)
    with pytest.raises(UsageError, match="not a checkpoint directory"):
        emit_transformers(tmp_path, tmp_path / "bundle", manifest, rows=1, num_instances=1)


class Request:
    """One request with its tensors."""

    def __init__(self, *prompts: str, max_tokens: int) -> None:
        sampling = json.dumps({"max_tokens": max_tokens})
        self.tensors = {"prompt": list(prompts), "sampling_parameters": [sampling] * len(prompts)}

    def read(self, name: str) -> Tensor:
        return Tensor(name, np.array([[text.encode()] for text in self.tensors[name]], dtype=np.object_))


@pytest.mark.slow
@pytest.mark.compile
def test_the_model_generates_what_transformers_does(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    emit_transformers(STORIES, tmp_path / "bundle", manifest, rows=8, num_instances=1)
    pb_utils: Any = FakeTriton()
    pb_utils.get_input_tensor_by_name = lambda request, name: request.read(name)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb_utils)
    source = (tmp_path / "bundle" / MODEL_NAME / "1" / "model.py").read_text()
    module = ModuleType("transformers_model")
    exec(compile(source, "model.py", "exec"), module.__dict__)
    parameters = {"checkpoint": str(STORIES), "dtype": "float32", "num_threads": str(torch.get_num_threads())}
    config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    model = module.TritonPythonModel()
    model.initialize({"model_config": json.dumps(config)})

    prompts = ["Once upon a time", "The dog ran to the big red", "Lily"]
    responses = model.execute([Request(prompts[0], max_tokens=9), Request(*prompts[1:], max_tokens=9)])
    texts = [row[0].decode() for response in responses for row in response.outputs["generated_text"]]

    tokenizer = AutoTokenizer.from_pretrained(STORIES)
    reference = AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        output = reference.generate(**ids, do_sample=False, max_new_tokens=9, min_new_tokens=9, pad_token_id=0)
        assert text == tokenizer.decode(output[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
