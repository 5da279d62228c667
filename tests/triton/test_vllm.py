"""The target `triton-vllm`: bundles load as they are on a real Triton server with a stand-in for the vLLM backend."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.triton.conftest import STORIES, emit
from tests.triton.serving import PYTHON, Triton, serving, triton_environment
from tests.validate.foreign_artifacts import write_rbln

PROMPT = "Once upon a time"
# The guide to vllm-rbln, step 2: the config of the backend's sample repository.
SAMPLE_CONFIG = 'backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n'
GUIDE_KEYS = [
    *("model", "device", "max_num_seqs", "compiled_model_dir"),
    *("max_num_batched_tokens", "max_model_len", "block_size"),
]


CLIENT = Path(__file__).parent / "tutorials" / "stream_client.py"


@contextlib.contextmanager
def playing(
    bundle: Path, artifact: Path, *models: str, engine: str = "vllm", release: str | None = None
) -> Iterator[Triton]:
    arguments = json.loads((bundle / "vllm_model" / "1" / "model.json").read_text())
    played = {"engine": engine, "release": release, "artifacts": {arguments["model"]: str(artifact)}}
    environment = {"VLLM_STAND_IN": json.dumps(played)}
    with serving(bundle, *models, completes_configs=True, environment=environment) as server:
        yield server


@pytest.fixture(scope="module")
def stock_bundle(stories8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    return emit(stories8, folder, "triton-vllm", model_name="vllm_model", model=str(STORIES), triton_release="26.01")


@pytest.fixture(scope="module")
def rbln_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rbln")
    return emit(write_rbln(folder / "artifact"), folder, "triton-vllm", model_name="vllm_model")


@pytest.fixture(scope="module")
def stock(stock_bundle: Path, stories8: Path) -> Iterator[Triton]:
    with playing(stock_bundle, stories8, "vllm_model", release="0.13.0") as server:
        yield server


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=triton_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_smoke_script_and_clients(stock: Triton, stock_bundle: Path) -> None:
    run(stock_bundle / "smoke.sh", stock.http_url)
    over_http = run(sys.executable, stock_bundle / "client_http.py", PROMPT, "--url", stock.http_url)
    over_grpc = run(PYTHON, stock_bundle / "client_grpc.py", PROMPT, "--url", stock.grpc_url)
    assert over_http == over_grpc
    assert "there was" in over_http


def test_the_emitted_config_is_what_the_backend_completes(stock: Triton, stock_bundle: Path) -> None:
    config = stock.client.get(f"{stock.http_url}/v2/models/vllm_model/config").json()
    assert config["max_batch_size"] == 0
    assert config["model_transaction_policy"] == {"decoupled": True}
    emitted = (stock_bundle / "vllm_model" / "config.pbtxt").read_text()
    assert [tensor["name"] for tensor in config["input"] if f'"{tensor["name"]}"' not in emitted] == []
    assert [tensor["name"] for tensor in config["output"] if f'"{tensor["name"]}"' not in emitted] == []


def test_an_unknown_key_is_refused_at_load(stock_bundle: Path, stories8: Path) -> None:
    """The keys of release 0.13.0 are not those of 0.2.7; `device` is the plugin's alone."""
    path = stock_bundle / "vllm_model" / "1" / "model.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"device": "rbln"}))
    try:
        with playing(stock_bundle, stories8, release="0.13.0") as server:
            response = server.load("vllm_model")
    finally:
        path.write_text(before)
    assert response.status_code == 400
    assert "AsyncEngineArgs.__init__() got an unexpected keyword argument 'device'" in response.text


def test_a_moved_vllm_rbln_bundle_and_the_guides_client(rbln_bundle: Path, stories8: Path) -> None:
    """`emit` has moved it; serve.sh then names the new place."""
    with playing(rbln_bundle, stories8, "vllm_model", engine="vllm-rbln", release="0.7.4") as server:
        arguments = json.loads((rbln_bundle / "vllm_model" / "1" / "model.json").read_text())
        assert list(arguments) == GUIDE_KEYS
        assert arguments["compiled_model_dir"] == str(rbln_bundle / "vllm_model" / "1" / "artifact")
        run(rbln_bundle / "smoke.sh", server.http_url)
        streamed = run(PYTHON, CLIENT, server.grpc_url, "vllm_model")
    assert streamed.strip()


def test_the_guides_own_config_loads(rbln_bundle: Path, stories8: Path) -> None:
    path = rbln_bundle / "vllm_model" / "config.pbtxt"
    before = path.read_text()
    path.write_text(SAMPLE_CONFIG)
    try:
        with playing(rbln_bundle, stories8, "vllm_model", engine="vllm-rbln", release="0.7.4") as server:
            assert run(PYTHON, CLIENT, server.grpc_url, "vllm_model").strip()
    finally:
        path.write_text(before)
