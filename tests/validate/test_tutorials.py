"""Both tutorials: what they print is clean once the path exists, each change is found, each of their defects too."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.validate.evaluate import Selection
from llmpack.validate.fix_rounds import fix_paths
from llmpack.validate.run import Report, ValidateOptions, validate_paths
from tests.validate.foreign_artifacts import write_rbln
from tests.validate.tutorials import (
    BATCHING_CONFIG,
    COMMAND,
    ENGINE_ARGS_JSON,
    LLAMAV2_CONFIG,
    LLAMAV2_MODEL_PY,
    MODEL_JSON,
    OLD_VLLM_CONFIG,
    PYTHON,
    VLLM_CONFIG,
    write_ensemble,
    write_files,
)

FILES = {"model.json": MODEL_JSON, "serve.sh": COMMAND, "engine.py": PYTHON}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_rbln(tmp_path / "rbln-Llama-2-7b-chat-hf")


def check(path: Path, artifact: Path | None = None, ignore: tuple[str, ...] = ("LP130", "LP133")) -> Report:
    report = validate_paths([path], ValidateOptions(artifact, Selection(ignore=ignore)))
    assert report.failures == ()
    return report


def rules(report: Report) -> list[str]:
    return sorted(finding.rule_id for finding in report.findings)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_named", [True, False], ids=["artifact given", "artifact from the config"])
def test_the_tutorial_is_clean_once_the_path_exists(tmp_path: Path, artifact: Path, name: str, is_named: bool) -> None:
    file = tmp_path / name
    file.write_text(FILES[name].replace("@ARTIFACT@", str(artifact)))
    report = check(file, artifact if is_named else None)
    assert (report.findings, report.not_checked, report.num_configs) == ((), (), 1)


def test_the_tutorials_repository_is_clean(tmp_path: Path, artifact: Path) -> None:
    model = {"vllm_model/config.pbtxt": VLLM_CONFIG, "vllm_model/1/model.json": MODEL_JSON}
    root = write_files(
        tmp_path / "repo", {name: text.replace("@ARTIFACT@", str(artifact)) for name, text in model.items()}
    )
    report = check(root, artifact)
    assert (report.findings, report.not_checked, report.num_configs) == ((), (), 2)


# One row per change of one number, type or key: what is printed, what stands there instead, what is found.
JSON_CHANGES = [
    ('"max_num_seqs": 4', '"max_num_seqs": 8', ["LP101"]),
    ('"max_num_seqs": 4', '"max_num_seqs": 2', ["LP101"]),
    ('"max_num_seqs": 4', '"max_num_seqs": "4"', ["LP110"]),
    ('"max_num_seqs": 4', '"max_num_seqs": "8"', ["LP101", "LP110"]),
    ('"max_num_seqs": 4', '"max_num_seqs": 4.0', ["LP110"]),
    ('"max_num_seqs": 4', '"max_num_seqs": true', ["LP110"]),
    ('"max_num_seqs": 4', '"max_num_seq": 4', ["LP101", "LP110"]),
    ('    "max_num_seqs": 4,\n', "", ["LP101"]),
    ('"max_num_seqs": 4', '"max_num_seqs": 8, "max_num_seqs": 4', ["LP111"]),
    ('"max_model_len": 4096', '"max_model_len": 2048', ["LP102"]),
    ('"max_model_len": 4096', '"max_model_len": 8192', ["LP102"]),
    ('    "max_model_len": 4096,\n', "", ["LP102"]),
    ('"max_num_batched_tokens": 4096', '"max_num_batched_tokens": 512', ["LP103"]),
    ('    "max_num_batched_tokens": 4096,\n', "", ["LP103"]),
    ('"block_size": 4096', '"block_size": 16', ["LP104"]),
    (',\n    "block_size": 4096', "", ["LP104"]),
    ('"compiled_model_dir": "@ARTIFACT@"', '"compiled_model_dir": "/nowhere/at/all"', ["LP105"]),
    ('"compiled_model_dir": "@ARTIFACT@"', '"compiled_model_dir": "rbln-Llama-2-7b-chat-hf"', ["LP105"]),
    ('"compiled_model_dir": "@ARTIFACT@"', '"compiled_model_dir": "/usr"', ["LP105"]),
    ('"compiled_model_dir": "@ARTIFACT@"', '"compiled_model_dir": ""', ["LP122"]),
    ('    "compiled_model_dir": "@ARTIFACT@",\n', "", ["LP105"]),
    ("Llama-2-7b-chat-hf", "Llama-2-13b-chat-hf", ["LP106"]),
    ('"block_size": 4096', '"block_size": 4096, "tensor_parallel_size": 2', ["LP107"]),
    ('"block_size": 4096', '"block_size": 4096, "tensor_parallel_size": 4', []),
    ('"device": "rbln"', '"device": "cuda"', ["LP108"]),
    ('"block_size": 4096', '"block_size": 4096, "enable_lora": true', ["LP112"]),
    ('"block_size": 4096', '"block_size": 4096, "enable_lora": "false"', ["LP110"]),
    ('"block_size": 4096', '"block_size": 4096, "speculative_model": "x"', ["LP112"]),
    ('"block_size": 4096', '"block_size": 4096, "max_numseqs": 4', ["LP110"]),
    ('"device": "rbln"', '"device": "${DEVICE}"', ["LP108", "LP122"]),
]


@pytest.mark.parametrize(("printed", "changed", "expected"), JSON_CHANGES)
def test_one_change_of_model_json(
    tmp_path: Path, artifact: Path, printed: str, changed: str, expected: list[str]
) -> None:
    assert MODEL_JSON.count(printed) == 1
    file = tmp_path / "model.json"
    file.write_text(MODEL_JSON.replace(printed, changed).replace("@ARTIFACT@", str(artifact)))
    report = check(file, artifact)
    assert rules(report) == expected
    lines = file.read_text().splitlines()
    assert all(finding.location.line is not None and finding.location.line <= len(lines) for finding in report.findings)


COMMAND_CHANGES = [
    ("--max-num-seqs 4", "--max-num-seqs 8", ["LP101"]),
    ("--max-num-seqs 4", "--max-num-seqs=8", ["LP101"]),
    ("--max-num-seqs 4", "--max_num_seqs 8", ["LP101"]),
    ("--max-num-seqs 4", "--max-num-seqs 4.0", ["LP110"]),
    ("--max-num-seqs 4", "--max-num-seqs 4 --max_num_seqs 8", ["LP101", "LP111"]),
    ("--max-num-seqs 4", "--max-num-seqs 8 --max_num_seqs 4", ["LP111"]),
    ("  --max-num-seqs 4 \\\n", "", ["LP101"]),
    ("--max-model-len 4096", "--max-model-len 2048", ["LP102"]),
    ("--max-num-batched-tokens 4096", "--max-num-batched-tokens 128", ["LP103"]),
    ("--block-size 4096", "--block-size 16", ["LP104"]),
    ("--block-size 4096", "--blocksize 4096", ["LP104", "LP110"]),
    ("--compiled-model-dir @ARTIFACT@", "--compiled-model-dir /ABSOLUTE/PATH/TO/it", ["LP105"]),
    ("Llama-2-7b-chat-hf", "Llama-2-13b-chat-hf", ["LP106"]),
    ("--block-size 4096", "--block-size 4096 -tp 2", ["LP107"]),
    ("--device rbln", "--device cpu", ["LP108"]),
    ("--block-size 4096", "--block-size 4096 --enable-lora", ["LP112"]),
    ("--block-size 4096", "--block-size 4096 --api-key sesame", ["LP141"]),
]


@pytest.mark.parametrize(("printed", "changed", "expected"), COMMAND_CHANGES)
def test_one_change_of_the_command(
    tmp_path: Path, artifact: Path, printed: str, changed: str, expected: list[str]
) -> None:
    assert COMMAND.count(printed) == 1
    file = tmp_path / "serve.sh"
    file.write_text(COMMAND.replace(printed, changed).replace("@ARTIFACT@", str(artifact)))
    assert rules(check(file, artifact)) == expected


@pytest.mark.parametrize(
    ("printed", "changed", "expected"),
    [
        ("batch_size = 4", "batch_size = 8", ["LP101"]),
        ("max_seq_len = 4096", "max_seq_len = 2048", ["LP102", "LP103", "LP104"]),
        ("max_num_seqs=batch_size", 'max_num_seqs="4"', ["LP110"]),
        ("block_size=max_seq_len", "blok_size=max_seq_len", ["LP104", "LP110"]),
        ('device="rbln"', 'device="cuda"', ["LP108"]),
    ],
)
def test_one_change_of_the_python_arguments(
    tmp_path: Path, artifact: Path, printed: str, changed: str, expected: list[str]
) -> None:
    assert PYTHON.count(printed) == 1
    file = tmp_path / "engine.py"
    file.write_text(PYTHON.replace(printed, changed).replace("@ARTIFACT@", str(artifact)))
    assert rules(check(file, artifact)) == expected


PYTHON_AS_YAML = """\
model: meta-llama/Llama-2-7b-chat-hf
device: rbln
compiled_model_dir: "@ARTIFACT@"
max_num_batched_tokens: 4096
max_model_len: 4096
block_size: 4096
"""
FLAGS = "--device rbln --max-num-batched-tokens 4096 --max-model-len 4096 --block-size 4096 --compiled-model-dir /m"
IN_ANY_FORMAT = {
    "model.json": MODEL_JSON.replace('"max_num_seqs": 4', '"max_num_seqs": 8'),
    "serve.sh": COMMAND.replace("--max-num-seqs 4", "--max-num-seqs=8"),
    "engine.py": PYTHON.replace("max_num_seqs=batch_size", "max_num_seqs=8"),
    "config.yaml": "max-num-seqs: 8  # slots\n" + PYTHON_AS_YAML,
    "compose.yaml": f"services: {{a: {{image: vllm/vllm-openai, shm_size: 1g, command: {FLAGS} --max-num-seqs 8}}}}\n",
    "Dockerfile": f"FROM a\nCMD vllm serve {FLAGS} \\\n  # slots\n  --max-num-seqs 8\n",
    "llm.service": f"[Service]\nExecStart=vllm serve {FLAGS} --max-num-seqs '8'\n",
}


@pytest.mark.parametrize("name", IN_ANY_FORMAT)
def test_a_fix_in_any_format_changes_one_character(tmp_path: Path, artifact: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(text := IN_ANY_FORMAT[name].replace("@ARTIFACT@", str(artifact)))
    options = ValidateOptions(artifact, Selection(select=("LP101",)))
    result = fix_paths([file], options)
    assert [finding.rule_id for finding in result.before.findings] == ["LP101"]
    assert result.after.findings == ()
    changed = file.read_text()
    assert len(changed) == len(text)
    assert [pair for pair in zip(text, changed, strict=True) if pair[0] != pair[1]] == [("8", "4")]


def test_python_backend_as_printed(tmp_path: Path) -> None:
    """The tree lacks the model's directory, finalize takes an argument, and a token is asked for in the source."""
    root = write_files(tmp_path / "model_repository", {"config.pbtxt": LLAMAV2_CONFIG, "1/model.py": LLAMAV2_MODEL_PY})
    found = {(finding.rule_id, finding.location.pointer) for finding in check(root).findings}
    assert {rule for rule, _ in found} == {"LP120", "LP121", "LP141"}


def test_batching_config_with_no_break_spaces(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"llamav2/config.pbtxt": BATCHING_CONFIG, "llamav2/1/model.py": "x = 1\n"})
    report = check(root)
    assert set(rules(report)) == {"LP122"}
    assert {finding.location.line for finding in report.findings} == {7, 8}
    assert all("U+00A0" in finding.message and finding.fix is not None for finding in report.findings)


def test_ensemble_as_printed(tmp_path: Path) -> None:
    report = check(write_ensemble(tmp_path / "model_repository"))
    found = sorted((finding.rule_id, finding.message) for finding in report.findings)
    assert [rule for rule, _ in found] == ["LP120", "LP121", "LP121", "LP123"]
    assert "git will drop it" in found[0][1]
    assert any("classifier" in message for _, message in found)
    assert any("model.py reads TEXT, config.pbtxt declares prompt" in message for _, message in found)
    assert "a tokenizer does nothing on a GPU" in found[3][1]


@pytest.mark.parametrize("name", ["ensemble_model", "model", "tokenizer"])
def test_ensemble_without_a_model(tmp_path: Path, name: str) -> None:
    root = write_ensemble(tmp_path / "model_repository")
    (root / name).rename(tmp_path / "elsewhere")
    expected = {"ensemble_model": set(), "model": {"LP121"}, "tokenizer": {"LP121"}}[name]
    missing = {f.rule_id for f in check(root).findings if f"no model called {name}" in f.message}
    assert missing == expected


def test_version_directory_that_git_dropped(tmp_path: Path) -> None:
    root = write_ensemble(tmp_path / "model_repository")
    (root / "ensemble_model" / "1").rmdir()
    assert any("no version directory" in finding.message for finding in check(root).findings)


def test_vllm_engine_args_as_printed(tmp_path: Path) -> None:
    """`disable_log_requests` is text instead of true, and vLLM removed it."""
    root = write_files(tmp_path, {"vllm/config.pbtxt": OLD_VLLM_CONFIG, "vllm/vllm_engine_args.json": ENGINE_ARGS_JSON})
    messages = [finding.message for finding in check(root).findings]
    assert any("0.10.1 removed disable_log_requests" in message for message in messages)
    assert any("true or false" in message for message in messages)
    assert any("no version directory" in message for message in messages)


def test_clients_prompt_against_the_vllm_backends_contract(tmp_path: Path) -> None:
    text = OLD_VLLM_CONFIG.replace('"python"', '"vllm"')
    root = write_files(tmp_path, {"vllm/config.pbtxt": text, "vllm/1/model.json": '{"model": "a/b"}'})
    messages = [finding.message for finding in check(root).findings if finding.rule_id == "LP121"]
    assert any("PROMPT; the nearest is text_input" in message for message in messages)
    assert any("generated_text; the nearest is text_output" in message for message in messages)


def test_the_artifact_that_a_config_names_is_unreadable(tmp_path: Path, artifact: Path) -> None:
    (artifact / "rbln_config.json").write_text("{")
    file = tmp_path / "model.json"
    file.write_text(MODEL_JSON.replace("@ARTIFACT@", str(artifact)))
    findings = check(file).findings
    assert [(finding.rule_id, "not valid JSON" in finding.message) for finding in findings] == [("LP105", True)]


def test_another_copy_of_the_artifact_will_do_and_another_artifact_will_not(tmp_path: Path, artifact: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(MODEL_JSON.replace("@ARTIFACT@", str(artifact)))
    assert rules(check(file, write_rbln(tmp_path / "copy"))) == []
    other = write_rbln(tmp_path / "other", dtype="float16")
    assert rules(check(file, other)) == ["LP105"]
