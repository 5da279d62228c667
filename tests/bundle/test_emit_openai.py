"""OpenAI bundles as they are written: complete, deterministic, valid, movable, and whole or not there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from llmpack import __version__
from llmpack.artifact.reader import open_artifact
from llmpack.bundle.openai import files
from llmpack.bundle.openai.command import quote_systemd
from llmpack.bundle.openai.emit import emit_openai
from llmpack.bundle.openai.options import OpenAIOptions, dns_label, resolve_plan
from llmpack.errors import ArtifactError, UsageError, ValidationFailed
from llmpack.validate.run import ValidateOptions, validate_paths
from tests.bundle.emitted import check_emitting_twice, check_golden, check_shell_scripts, write_sample
from tests.bundle.openai_cases import CASES, artifact_for
from tests.validate.foreign_artifacts import write_foreign, write_rbln

COMMANDS = {"serve.sh", "smoke.sh", "client.sh", "client.py", "client.mjs"}
CONFIGS = ("serve.sh", "Dockerfile", "compose.yaml", "kubernetes.yaml", "vllm-rbln.service")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "artifact")


@pytest.fixture
def rbln(tmp_path: Path) -> Path:
    return write_rbln(tmp_path / "rbln")


@pytest.mark.parametrize("case", CASES)
def test_golden_files(case: str, tmp_path: Path) -> None:
    emit_openai(artifact_for(case, tmp_path), tmp_path / "bundle", CASES[case])
    check_golden(tmp_path / "bundle", case)


@pytest.mark.parametrize("case", CASES)
def test_emitting_twice_gives_equal_bytes_and_modes(case: str, tmp_path: Path) -> None:
    source = artifact_for(case, tmp_path)
    assert check_emitting_twice(lambda target: emit_openai(source, target, CASES[case]), tmp_path) == COMMANDS


@pytest.mark.parametrize("case", CASES)
def test_validate_reads_every_definition_and_finds_nothing(case: str, tmp_path: Path) -> None:
    source = artifact_for(case, tmp_path)
    emit_openai(source, tmp_path / "bundle", CASES[case])
    report = validate_paths([tmp_path / "bundle"], ValidateOptions(source))
    assert report.findings == ()
    assert report.failures == ()
    assert report.num_configs == len(CONFIGS) + 1  # and .env.example
    check_shell_scripts(tmp_path / "bundle")
    compile((tmp_path / "bundle" / "client.py").read_text(encoding="utf-8"), "client.py", "exec")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_number_changed_in_one_file_is_found_there(name: str, rbln: Path, tmp_path: Path) -> None:
    emit_openai(rbln, tmp_path / "bundle", OpenAIOptions("vllm-rbln", model_name="m"))
    path = tmp_path / "bundle" / name
    text = path.read_text(encoding="utf-8")
    altered = text.replace("max-num-seqs=4", "max-num-seqs=8").replace("max-num-seqs 4", "max-num-seqs 8")
    assert altered != text
    path.write_text(altered, encoding="utf-8")
    (finding,) = validate_paths([tmp_path / "bundle"], ValidateOptions(rbln)).findings
    assert (finding.rule_id, finding.location.path, finding.given) == ("LP101", str(path), "8")


def test_absolute_paths_leave_the_artifact_where_it_is(artifact: Path, tmp_path: Path) -> None:
    emit_openai(artifact, tmp_path / "bundle", OpenAIOptions(has_absolute_paths=True))
    assert not (tmp_path / "bundle" / "artifact").exists()
    for name, text in {
        "serve.sh": f"\n    {artifact} \\\n",
        "llmpack.service": f"\n    {artifact} \\\n",
        "compose.yaml": f"- {artifact}:/artifact:ro\n",
    }.items():
        assert text in (tmp_path / "bundle" / name).read_text(encoding="utf-8")


def test_a_local_checkpoint_for_vllm_is_mounted_where_it_lies(artifact: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "50% of $all" / "tiny-llama"
    checkpoint.mkdir(parents=True)
    emit_openai(artifact, tmp_path / "bundle", OpenAIOptions("vllm", model=str(checkpoint)))
    compose = (tmp_path / "bundle" / "compose.yaml").read_text(encoding="utf-8")
    assert f"- {checkpoint}:{checkpoint}:ro\n".replace("$", "$$") in compose
    assert "HF_TOKEN" not in compose
    assert f"\n{checkpoint}\n" in run_serve(tmp_path / "bundle").stdout
    unit = (tmp_path / "bundle" / "vllm.service").read_text(encoding="utf-8")
    assert '/50%% of $$all/tiny-llama"' in unit


def run_serve(bundle: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """serve.sh with `python3` replaced by one that prints what it would run."""
    binaries = bundle.parent / "bin"
    binaries.mkdir(exist_ok=True)
    stand_in = binaries / "python3"
    if not stand_in.exists():
        stand_in.symlink_to(Path(__file__).parent / "record_python.sh")
    environment = {"PATH": f"{binaries}:/usr/bin:/bin", **environment}
    command = [str(bundle / "serve.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_moved_bundle_starts_the_engine_with_its_new_place(rbln: Path, tmp_path: Path) -> None:
    emit_openai(rbln, tmp_path / "bundle", OpenAIOptions("vllm-rbln", model_name="m"))
    moved = (tmp_path / "bundle").rename(tmp_path / "moved to")
    done = run_serve(moved, "--port", "9", "--disable-log-requests", SERVE_HOST="::", SERVE_PORT="8")
    assert done.returncode == 0, done.stderr
    expected = f"""-m vllm.entrypoints.openai.api_server --model meta-llama/Llama-2-7b-chat-hf --device rbln
        --max-num-seqs 4 --compiled-model-dir {moved}/artifact --max-num-batched-tokens 4096 --max-model-len 4096
        --block-size 4096 --served-model-name m --host :: --port 8 --port 9 --disable-log-requests"""
    assert " ".join(done.stdout.splitlines()).split() == expected.split()


def test_stock_vllm_is_started_with_the_source_model(artifact: Path, tmp_path: Path) -> None:
    emit_openai(artifact, tmp_path / "bundle", CASES["openai-vllm"])
    done = run_serve(tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    expected = """-m vllm.entrypoints.openai.api_server --model org/tiny-llama --dtype float32 --max-num-seqs 4
        --max-model-len 64 --tensor-parallel-size 1 --served-model-name sample --host 127.0.0.1 --port 8000"""
    assert done.stdout.split() == expected.split()


@pytest.mark.parametrize(("release", "drains"), [("0.13.0", False), ("0.33.0", True)])
def test_flags_are_those_that_the_release_knows(artifact: Path, tmp_path: Path, release: str, drains: bool) -> None:
    options = OpenAIOptions("vllm", model="org/tiny-llama", engine_release=release)
    emit_openai(artifact, tmp_path / "bundle", options)
    assert ("--shutdown-timeout" in (tmp_path / "bundle" / "serve.sh").read_text(encoding="utf-8")) is drains
    image = f"FROM vllm/vllm-openai:v{release}\n"
    assert image in (tmp_path / "bundle" / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        (
            "0.7.4",
            "model device max-num-seqs compiled-model-dir max-num-batched-tokens max-model-len block-size "
            "served-model-name",
        ),
        (
            "0.10.2",
            "model max-num-seqs max-num-batched-tokens max-model-len block-size served-model-name shutdown-timeout",
        ),
    ],
)
def test_vllm_rbln_gets_the_flags_of_its_release(rbln: Path, release: str, flags: str) -> None:
    plan = resolve_plan(OpenAIOptions("vllm-rbln", engine_release=release), rbln)
    given = [flag.removeprefix("--") for flag, _ in plan.command.arguments if flag]
    assert given == flags.split()
    (place,) = [flag for flag, value in plan.command.arguments if value is None]
    assert place == ("--compiled-model-dir" if release == "0.7.4" else "--model")


def test_a_missing_server_is_named(rbln: Path, artifact: Path, tmp_path: Path) -> None:
    emit_openai(rbln, tmp_path / "rbln-bundle", OpenAIOptions("vllm-rbln"))
    done = run_serve(tmp_path / "rbln-bundle", LACKS_VLLM="1")
    assert done.returncode == 127
    assert "the python3 on PATH has no vllm" in done.stderr
    emit_openai(artifact, tmp_path / "bundle")
    done = run_serve(tmp_path / "bundle")
    assert done.returncode == 127
    assert "llmpack is not on PATH; install it: pip install 'llmpack==" in done.stderr


def test_memory_is_that_of_the_manifest(artifact: Path) -> None:
    manifest = open_artifact(artifact).manifest
    resources = resolve_plan(OpenAIOptions(), artifact).resources
    sizes = [size for _, size in resources.parts]
    weights = 256 * 40
    assert sizes[:3] == [weights, 2 * weights, manifest.kv_cache.total_bytes]
    assert resources.memory_mib % 64 == 0
    assert 0 <= resources.memory_mib * 2**20 - sum(sizes) < 64 * 2**20


@pytest.mark.parametrize(
    ("name", "label"),
    [("Llama-2_7b.Q4", "llama-2-7b-q4"), ("7B--chat", "m-7b-chat"), ("x" * 80, "x" * 40), ("a.", "a")],
)
def test_names_for_clusters(name: str, label: str) -> None:
    assert dns_label(name) == label


@pytest.mark.parametrize(
    ("word", "quoted"),
    [("--port", "--port"), ("/a b", '"/a b"'), ('50%$"', '"50%%$$\\""'), ("a\\b", '"a\\\\b"')],
)
def test_words_of_a_unit_are_quoted(word: str, quoted: str) -> None:
    assert quote_systemd(word) == quoted


def test_a_bundle_that_validate_rejects_is_not_written(
    rbln: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.build_objects
    altered = json.loads(json.dumps(real(resolve_plan(OpenAIOptions("vllm-rbln"), rbln))).replace("=4096", "=4095"))
    monkeypatch.setattr(files, "build_objects", lambda _plan: altered)
    with pytest.raises(ValidationFailed, match="LP102 .*4096"):
        emit_openai(rbln, tmp_path / "bundle", OpenAIOptions("vllm-rbln"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rbln"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (OpenAIOptions("vlm"), "Did you mean vllm?"),  # type: ignore[arg-type]
        (OpenAIOptions("vllm-rblm"), "Did you mean vllm-rbln?"),  # type: ignore[arg-type]
        (OpenAIOptions(model_name="a b"), "not a name for a served model"),
        (OpenAIOptions(engine_release="0.7.3"), "llmpack emits for its own release"),
        (OpenAIOptions(model="a/b"), "only --for vllm loads a model other than the artifact"),
        (OpenAIOptions(image="a b"), "not the name of an image"),
        (OpenAIOptions("vllm", model="a/b", has_absolute_paths=True), "no artifact that could lie inside"),
        (OpenAIOptions("vllm"), "compiled from a local one in --model"),
        (OpenAIOptions("vllm", model="a/b", engine_release="new"), "not a version in --engine-release"),
    ],
)
def test_unusable_options(artifact: Path, tmp_path: Path, options: OpenAIOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        emit_openai(artifact, tmp_path / "bundle", options)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("kind", "server", "message"),
    [
        ("optimum-rbln", "vllm", "vllm does not serve it.*optimum-rbln.*allowed: llmpack"),
        ("optimum-neuron", "vllm-rbln", "vllm-rbln does not serve it.*allowed: optimum-rbln"),
        ("mlc-llm", "llmpack", "llmpack.json"),
    ],
)
def test_artifacts_that_the_server_does_not_serve(tmp_path: Path, kind: str, server: str, message: str) -> None:
    source = write_foreign(tmp_path / "foreign", kind)
    with pytest.raises(ArtifactError, match=message):
        emit_openai(source, tmp_path / "bundle", OpenAIOptions(server))  # type: ignore[arg-type]


def test_torch_is_installed_where_the_artifact_needs_it(tmp_path: Path) -> None:
    emit_openai(write_sample(tmp_path / "artifact", engine="inductor"), tmp_path / "bundle")
    dockerfile = (tmp_path / "bundle" / "Dockerfile").read_text()
    assert f"ARG LLMPACK=llmpack[inductor]=={__version__}\n" in dockerfile
    assert "ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu\n" in dockerfile
    assert "No torch" not in dockerfile
    assert f"pip install 'llmpack[inductor]=={__version__}'" in (tmp_path / "bundle" / "serve.sh").read_text()
