"""Bundles as they are written: complete, deterministic, valid, movable, and whole or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmpack import __version__
from llmpack.artifact.reader import open_artifact
from llmpack.artifact.weights_file import WEIGHTS_PATH
from llmpack.bundle import triton_files
from llmpack.bundle.emit import emit_triton
from llmpack.bundle.options import LOGITS_TARGETS, EmitOptions, TritonTarget
from llmpack.errors import ArtifactError, UsageError, ValidationFailed
from llmpack.validate.run import ValidateOptions, validate_paths
from tests.bundle.emitted import check_emitting_twice, check_golden, check_shell_scripts, write_sample
from tests.validate.foreign_artifacts import write_foreign, write_rbln

CASES = {
    "triton": EmitOptions("triton", model_name="sample"),
    "triton-24.01": EmitOptions("triton", model_name="sample", triton_release="24.01"),
    "triton-python": EmitOptions("triton-python", model_name="sample", num_instances=2),
    "triton-vllm": EmitOptions("triton-vllm", model_name="sample", model="org/tiny-llama", triton_release="25.03"),
    "triton-vllm-rbln": EmitOptions("triton-vllm", model_name="vllm_model"),
    "triton-ensemble": EmitOptions("triton-ensemble", model_name="sample"),
    "triton-logits": EmitOptions("triton-logits", model_name="sample"),
}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "artifact")


def artifact_for(case: str, folder: Path) -> Path:
    if case == "triton-vllm-rbln":
        return write_rbln(folder / "rbln")
    return write_sample(folder / "artifact", logits=case in LOGITS_TARGETS)


@pytest.mark.parametrize("case", CASES)
def test_golden_files(case: str, tmp_path: Path) -> None:
    emit_triton(artifact_for(case, tmp_path), tmp_path / "bundle", CASES[case])
    check_golden(tmp_path / "bundle", case)


@pytest.mark.parametrize("case", CASES)
def test_emitting_twice_gives_equal_bytes_and_modes(case: str, tmp_path: Path) -> None:
    source = artifact_for(case, tmp_path)
    commands = check_emitting_twice(lambda target: emit_triton(source, target, CASES[case]), tmp_path)
    assert commands == {"serve.sh", "serve-docker.sh", "smoke.sh", "client_grpc.py", "client_http.py"}


@pytest.mark.parametrize("case", CASES)
def test_validate_finds_nothing_and_scripts_are_sound(case: str, tmp_path: Path) -> None:
    source = artifact_for(case, tmp_path)
    emit_triton(source, tmp_path / "bundle", CASES[case])
    report = validate_paths([tmp_path / "bundle"], ValidateOptions(source))
    assert report.findings == ()
    assert report.failures == ()
    assert report.num_configs >= 1
    check_shell_scripts(tmp_path / "bundle")
    for client in (tmp_path / "bundle").glob("client_*.py"):
        compile(client.read_text(encoding="utf-8"), str(client), "exec")


def test_absolute_paths_leave_the_artifact_where_it_is(artifact: Path, tmp_path: Path) -> None:
    emit_triton(artifact, tmp_path / "bundle", EmitOptions(has_absolute_paths=True, model_name="m"))
    assert not (tmp_path / "bundle" / "m" / "1" / "artifact").exists()
    assert f'string_value: "{artifact}"' in (tmp_path / "bundle" / "m" / "config.pbtxt").read_text()
    assert f'--volume "{artifact}":"{artifact}":ro' in (tmp_path / "bundle" / "serve-docker.sh").read_text()


def test_a_moved_vllm_bundle_names_its_new_place(tmp_path: Path) -> None:
    emit_triton(write_rbln(tmp_path / "rbln"), tmp_path / "bundle", EmitOptions("triton-vllm", model_name="m"))
    model_json = Path("m", "1", "model.json")
    before = json.loads((tmp_path / "bundle" / model_json).read_text())
    assert before["compiled_model_dir"] == str(tmp_path / "bundle" / "m" / "1" / "artifact")
    moved = (tmp_path / "bundle").rename(tmp_path / "moved to")
    shown = run_serve(moved)
    after = json.loads((moved / model_json).read_text())
    assert after == before | {"compiled_model_dir": str(moved / "m" / "1" / "artifact")}
    assert f"--model-repository={moved}" in shown
    assert validate_paths([moved], ValidateOptions(tmp_path / "rbln")).findings == ()


def run_serve(bundle: Path, *arguments: str) -> list[str]:
    """The words with which serve.sh would start the server."""
    environment = {**os.environ, "TRITONSERVER": str(Path(__file__).parent / "print_arguments.sh")}
    command = [str(bundle / "serve.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_serve_takes_ports_and_passes_the_rest_on(tmp_path: Path) -> None:
    emit_triton(write_rbln(tmp_path / "rbln"), tmp_path / "bundle", EmitOptions("triton-vllm", model_name="m"))
    words = run_serve(tmp_path / "bundle", "--http", "1", "--grpc", "2", "--metrics", "3", "--address", "::", "--exit")
    assert words[-4:] == ["--http-port=1", "--grpc-port=2", "--metrics-port=3", "--exit"]
    assert "--http-address=::" in words


def test_serve_refuses_numpy_2(artifact: Path, tmp_path: Path) -> None:
    emit_triton(artifact, tmp_path / "bundle")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "python3").symlink_to(sys.executable)
    fake = tmp_path / "fake" / "numpy"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text('__version__ = "2.1.0"')
    root = Path(triton_files.__file__).parent.parent.parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": f"{fake.parent}:{root}"}
    done = subprocess.run(
        [str(tmp_path / "bundle" / "serve.sh")], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert "breaks on numpy 2.1.0" in done.stderr


def test_a_bundle_that_validate_rejects_is_not_written(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = triton_files.render_config
    monkeypatch.setattr(triton_files, "render_config", lambda config: real(config).replace("KIND_CPU", "KIND_GPU"))
    with pytest.raises(ValidationFailed, match="LP123 .*a host without one refuses the model"):
        emit_triton(artifact, tmp_path / "bundle")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EmitOptions("trition"), "Did you mean triton?"),  # type: ignore[arg-type]
        (
            EmitOptions("triton-vllm", model="a/b", num_instances=2),
            "would be another engine that loads the model again",
        ),
        (EmitOptions("triton-python", num_instances=0), "too few instances"),
        (EmitOptions(model_name="späti"), "not a name for a served model"),
        (EmitOptions(triton_release="23.08"), "not a release of Triton's container that is known"),
        (EmitOptions(triton_release="latest"), "allowed: yy.mm from 24.01 on"),
        (EmitOptions(engine_release="0.7.3"), "only --target triton-vllm has an engine of its own in --engine-release"),
        (EmitOptions("triton-vllm"), "compiled from a local one in --model"),
        (EmitOptions("triton-vllm", model="a/b", engine_release="new"), "not a version in --engine-release"),
    ],
)
def test_unusable_options(artifact: Path, tmp_path: Path, options: EmitOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        emit_triton(artifact, tmp_path / "bundle", options)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(("target", "model"), [("triton-ensemble", "m-logits"), ("triton-logits", "m")])
def test_the_programs_version_directory_is_the_artifact(tmp_path: Path, target: TritonTarget, model: str) -> None:
    source = write_sample(tmp_path / "artifact", logits=True)
    emit_triton(source, tmp_path / "bundle", EmitOptions(target, model_name="m"))
    inside = tmp_path / "bundle" / model / "1"
    assert open_artifact(inside).manifest == open_artifact(source).manifest
    assert (inside / WEIGHTS_PATH).samefile(source / WEIGHTS_PATH)
    assert [path.parent.parent for path in (tmp_path / "bundle").rglob("*.safetensors")] == [inside]
    # Without being told of the artifact, `validate` compares with the one that it finds there.
    config = tmp_path / "bundle" / model / "config.pbtxt"
    config.write_text(config.read_text().replace("-1, -1, 320", "-1, -1, 300"))
    findings = validate_paths([tmp_path / "bundle"], ValidateOptions()).findings
    assert {finding.rule_id for finding in findings} == {"LP121"}
    assert any(finding.given == [-1, -1, 300] and finding.compiled == [-1, -1, 320] for finding in findings)


@pytest.mark.parametrize("target", LOGITS_TARGETS)
def test_logits_need_their_program_and_their_place(artifact: Path, tmp_path: Path, target: TritonTarget) -> None:
    with pytest.raises(UsageError, match=r"no program that whole prompts pass through.*Compile .* with --logits"):
        emit_triton(artifact, tmp_path / "bundle", EmitOptions(target))
    with pytest.raises(UsageError, match="only from the directory of its model in --absolute-paths"):
        emit_triton(artifact, tmp_path / "bundle", EmitOptions(target, has_absolute_paths=True))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("release", "keys"),
    [
        ("0.7.4", "model device max_num_seqs compiled_model_dir max_num_batched_tokens max_model_len block_size"),
        ("0.10.2", "model max_num_seqs max_num_batched_tokens max_model_len block_size"),
    ],
)
def test_vllm_rbln_gets_the_keys_of_its_release(tmp_path: Path, release: str, keys: str) -> None:
    options = EmitOptions("triton-vllm", model_name="m", engine_release=release)
    emit_triton(write_rbln(tmp_path / "rbln"), tmp_path / "bundle", options)
    arguments = json.loads((tmp_path / "bundle" / "m" / "1" / "model.json").read_text())
    assert list(arguments) == keys.split()
    named = arguments["compiled_model_dir" if "device" in keys else "model"]
    assert named == str(tmp_path / "bundle" / "m" / "1" / "artifact")


def test_artifacts_that_no_engine_of_triton_runs(tmp_path: Path) -> None:
    source = tmp_path / "neuron"
    write_foreign(source, "optimum-neuron")
    with pytest.raises(ArtifactError, match="no engine of Triton's vLLM backend runs it.*optimum-neuron"):
        emit_triton(source, tmp_path / "bundle", EmitOptions("triton-vllm"))


@pytest.mark.parametrize("target", ["triton", "triton-python"])
def test_torch_is_installed_where_the_artifact_needs_it(tmp_path: Path, target: TritonTarget) -> None:
    emit_triton(write_sample(tmp_path / "artifact", engine="inductor"), tmp_path / "bundle", EmitOptions(target))
    dockerfile = (tmp_path / "bundle" / "Dockerfile").read_text()
    assert f"ARG LLMPACK=llmpack[inductor]=={__version__}\n" in dockerfile
    assert "ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu\n" in dockerfile
    for name in ("README.md", "serve.sh"):
        assert f"'llmpack[inductor]=={__version__}'" in (tmp_path / "bundle" / name).read_text()
