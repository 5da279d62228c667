"""A directory becomes a checkpoint; whatever cannot is refused with the next step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmpack.checkpoint.source import open_checkpoint
from llmpack.errors import CheckpointNotFound, CorruptCheckpoint, UnsupportedArchitecture, UsageError
from tests.checkpoint.files import CONFIG, write_json, write_single

STORIES = Path(__file__).parents[1] / "data" / "stories260K"


def test_a_real_directory() -> None:
    checkpoint = open_checkpoint(str(STORIES))
    assert (checkpoint.kind, checkpoint.model, checkpoint.revision) == ("directory", "stories260K", None)
    assert checkpoint.directory == STORIES
    assert checkpoint.config["hidden_size"] == 64
    assert checkpoint.generation_config == {"bos_token_id": 1, "eos_token_id": [1, 2]}
    assert checkpoint.weights.info("model.embed_tokens.weight").shape == (512, 64)
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE"} <= set(checkpoint.sidecar_files)
    names = [name for name, _ in checkpoint.source_files]
    assert names == sorted(names)
    assert "model.safetensors" in names
    assert "greedy.json" not in names
    assert all(path.is_file() for _, path in checkpoint.source_files)


def test_a_name_does_not_depend_on_how_the_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_single(tmp_path / "my-model"))
    assert open_checkpoint(".").model == "my-model"


def test_remote_code_is_recorded_and_not_run(tmp_path: Path) -> None:
    write_single(tmp_path)
    write_json(tmp_path / "config.json", CONFIG | {"auto_map": {"AutoModel": "modeling_evil.Evil"}})
    (tmp_path / "modeling_evil.py").write_text("raise SystemExit('ran')")
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.config["auto_map"]
    assert "modeling_evil.py" not in checkpoint.sidecar_files


def test_several_chat_templates_are_carried(tmp_path: Path) -> None:
    (write_single(tmp_path) / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("x")
    assert open_checkpoint(str(tmp_path)).read_sidecar("additional_chat_templates/tool_use.jinja") == b"x"
    assert open_checkpoint(str(tmp_path)).read_sidecar("chat_template.jinja") is None


def test_no_config(tmp_path: Path) -> None:
    (write_single(tmp_path) / "config.json").unlink()
    with pytest.raises(CheckpointNotFound, match=r"no config\.json.*model\.safetensors"):
        open_checkpoint(str(tmp_path))


def test_a_directory_of_ggufs_asks_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "m.Q8_0.gguf").write_bytes(b"")
    with pytest.raises(CheckpointNotFound, match=r"Pass the \.gguf file itself: m\.Q8_0\.gguf"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_unreadable_json_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (write_single(tmp_path) / name).write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=name):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("nest", [lambda config: config, lambda config: {"text_config": config}])
def test_a_quantised_checkpoint_is_refused(tmp_path: Path, nest: object) -> None:
    write_single(tmp_path)
    assert callable(nest)
    write_json(tmp_path / "config.json", CONFIG | nest({"quantization_config": {"quant_method": "gptq", "bits": 4}}))
    with pytest.raises(UnsupportedArchitecture, match=r"quantised.*gptq.*unquantised"):
        open_checkpoint(str(tmp_path))


def test_a_revision_belongs_to_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only for a hub id"):
        open_checkpoint(str(write_single(tmp_path)), revision="main")


def test_a_misspelt_path_names_its_neighbour(tmp_path: Path) -> None:
    write_single(tmp_path / "my-model")
    with pytest.raises(CheckpointNotFound, match=r"similar spelling: .*/my-model"):
        open_checkpoint(str(tmp_path / "my-modle"))


def test_a_missing_gguf_is_not_looked_up_on_the_hub() -> None:
    with pytest.raises(CheckpointNotFound, match="no such model"):
        open_checkpoint("nowhere.gguf")


def test_a_weights_file_asks_for_its_directory(tmp_path: Path) -> None:
    write_single(tmp_path)
    with pytest.raises(CheckpointNotFound, match="Perhaps you meant its directory"):
        open_checkpoint(str(tmp_path / "model.safetensors"))


def test_a_directory_is_read_without_hub_client_torch_or_gguf() -> None:
    code = (
        "import sys; from llmpack.checkpoint.source import open_checkpoint; "
        f"open_checkpoint({str(STORIES)!r}).weights.read('model.norm.weight'); "
        "print(sorted({'torch', 'transformers', 'onnx', 'gguf', 'huggingface_hub'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
