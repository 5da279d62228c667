"""A hub model comes whole from one commit, or the error says what to do; against a hub on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmpack.checkpoint.source import open_checkpoint
from llmpack.errors import (
    CheckpointAccessDenied,
    CheckpointError,
    CheckpointNotFound,
    CorruptCheckpoint,
    UnsafeCheckpoint,
)
from tests.checkpoint.files import DATA, write_sharded, write_single
from tests.checkpoint.hub_server import COMMIT, Hub, read_files, serve_hub

MODEL = "owner/small"
TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A served hub that the client talks to, with the sharded checkpoint and much that must not be fetched."""
    files = read_files(write_sharded(tmp_path / "origin"))
    files |= {"tokenizer.json": b"{}", "chat_template.jinja": b"x", "README.md": b"", "modeling_x.py": b"raise"}
    files |= {"pytorch_model.bin": b"\x80", "consolidated.safetensors": b"", "onnx/config.json": b""}
    with serve_hub(Hub(MODEL, files)) as served:
        use_endpoint(monkeypatch, served.endpoint)
        yield served


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def write_cache(root: Path, revision: str = "main", model: str = MODEL) -> Path:
    """The hub cache's layout with a sound snapshot; returns the snapshot."""
    folder = root / f"models--{model.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / revision).write_text(COMMIT)
    return write_single(folder / "snapshots" / COMMIT)


def test_a_download_takes_what_is_needed_from_one_commit(hub: Hub, tmp_path: Path) -> None:
    told: list[str] = []
    checkpoint = open_checkpoint(MODEL, cache_dir=tmp_path / "cache", progress=told.append)
    assert (checkpoint.kind, checkpoint.model, checkpoint.revision) == ("hub", MODEL, COMMIT)
    needed = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors.index.json"}
    assert hub.fetched() == needed | {"one.safetensors", "two.safetensors"}
    assert checkpoint.weights.read("b").tobytes() == DATA[8:16]
    assert checkpoint.directory is not None
    assert {name for name, _ in checkpoint.source_files} == hub.fetched()
    assert len(told) == 3


def test_nothing_is_written_to_the_terminal(hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")


def test_the_token_goes_to_the_hub_and_nowhere_else(hub: Hub, tmp_path: Path) -> None:
    told: list[str] = []
    checkpoint = open_checkpoint(MODEL, cache_dir=tmp_path / "cache", progress=told.append)
    assert {authorization for _, _, authorization in hub.log} == {f"Bearer {TOKEN}"}
    assert TOKEN not in repr(checkpoint) + "".join(told)


def test_a_second_download_fetches_no_file(hub: Hub, tmp_path: Path) -> None:
    open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    hub.log.clear()
    open_checkpoint(MODEL, revision=COMMIT, cache_dir=tmp_path / "cache")
    assert hub.fetched() == set()


def test_a_single_weights_file_is_preferred(hub: Hub, tmp_path: Path) -> None:
    hub.files = read_files(write_single(tmp_path / "single")) | hub.files
    checkpoint = open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    assert checkpoint.weights.names() == ["a", "b", "c"]
    assert hub.fetched() == {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_once_downloaded_it_works_offline(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str | None
) -> None:
    open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    hub.log.clear()
    go_offline(monkeypatch)
    checkpoint = open_checkpoint(MODEL, revision=revision, cache_dir=tmp_path / "cache")
    assert checkpoint.revision == COMMIT
    assert hub.log == []


def test_a_cache_that_another_program_filled_works_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = write_cache(tmp_path, "v1.0")
    go_offline(monkeypatch)
    checkpoint = open_checkpoint(MODEL, revision="v1.0", cache_dir=tmp_path)
    assert (checkpoint.revision, checkpoint.directory) == (COMMIT, snapshot)


def test_a_half_filled_cache_is_not_mistaken_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (write_sharded(write_cache(tmp_path)) / "model.safetensors").unlink()
    (tmp_path / f"models--owner--small/snapshots/{COMMIT}/two.safetensors").unlink()
    go_offline(monkeypatch)
    with pytest.raises(CorruptCheckpoint, match=r"two\.safetensors: the file is missing"):
        open_checkpoint(MODEL, cache_dir=tmp_path)


def test_offline_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch)
    with pytest.raises(CheckpointError, match=r"not in the local cache.*owner/small at main.*HF_HUB_OFFLINE"):
        open_checkpoint(MODEL, cache_dir=tmp_path)


def test_no_network_falls_back_to_the_cache_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_endpoint(monkeypatch, "http://127.0.0.1:9")  # the discard port: refused at once
    write_cache(tmp_path)
    told: list[str] = []
    assert open_checkpoint(MODEL, cache_dir=tmp_path, progress=told.append).revision == COMMIT
    assert told == [f"the hub gives no answer; using the cached commit {COMMIT}"]


def test_no_network_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_endpoint(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(CheckpointError, match="the hub gives no answer"):
        open_checkpoint(MODEL, cache_dir=tmp_path)


def test_a_gated_model_says_how_to_get_in(hub: Hub, tmp_path: Path) -> None:
    hub.gated = True
    page = re.escape(f"{hub.endpoint}/{MODEL}")
    with pytest.raises(CheckpointAccessDenied, match=rf"Accept the licence at {page}, then .*hf auth login.*HF_TOKEN"):
        open_checkpoint(MODEL, cache_dir=tmp_path / "cache")


def test_a_missing_model_may_be_private_or_misspelt(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smoll").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointNotFound, match=r"smol.*If it is private.*hf auth login.*similar spelling: smoll"):
        open_checkpoint("smol", cache_dir=tmp_path / "cache")


def test_a_missing_revision(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="no such revision in owner/small; given: v9"):
        open_checkpoint(MODEL, revision="v9", cache_dir=tmp_path / "cache")


def test_a_pickled_model_is_refused_before_the_download(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"config.json": b"{}", "pytorch_model.bin": b"\x80"}
    with pytest.raises(UnsafeCheckpoint, match=r"pytorch_model\.bin"):
        open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    assert hub.fetched() == set()


def test_a_model_of_ggufs_asks_for_one(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"m.Q8_0.gguf": b""}
    with pytest.raises(CheckpointNotFound, match=r"Pass one \.gguf file itself: m\.Q8_0\.gguf"):
        open_checkpoint(MODEL, cache_dir=tmp_path / "cache")


def test_a_refused_token(hub: Hub, tmp_path: Path) -> None:
    hub.status = 403
    with pytest.raises(CheckpointAccessDenied, match=r"HTTP 403.*token may be wrong") as caught:
        open_checkpoint(MODEL, cache_dir=tmp_path / "cache")
    assert TOKEN not in str(caught.value)


def test_a_hub_that_is_down_counts_as_no_answer(hub: Hub, tmp_path: Path) -> None:
    hub.status = 503
    with pytest.raises(CheckpointError, match="the hub gives no answer"):
        open_checkpoint(MODEL, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("model", ["a..b/c", "a--b"])
def test_a_name_that_no_repository_can_have(tmp_path: Path, model: str) -> None:
    with pytest.raises(CheckpointNotFound, match="not a repository id"):
        open_checkpoint(model, cache_dir=tmp_path)
