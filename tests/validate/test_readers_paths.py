"""Which files are read below a directory, how models of a repository find each other, and what happens to rubbish."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.validate.readers.read import read_paths
from llmpack.validate.readers.source_text import MAX_FILE_BYTES
from llmpack.validate.readers.walk import MAX_DEPTH
from tests.validate.reading import failure_of, read_one, values_of, write


@pytest.mark.parametrize(
    ("name", "content", "kind", "origin"),
    [
        ("model.json", "{}", "model.json", "file"),
        ("vllm_engine_args.json", "{}", "model.json", "file"),
        ("other.json", '{"model": "x"}', "model.json", "file"),
        ("config.pbtxt", 'name: "x"', "config.pbtxt", "file"),
        ("Dockerfile.cpu", "FROM a\nCMD vllm serve m", "command-line", "dockerfile"),
        ("server.Dockerfile", "FROM a\nCMD vllm serve m", "command-line", "dockerfile"),
        (".env", "A=1", "env-file", "file"),
        ("prod.env", "A=1", "env-file", "file"),
        ("run.sh", "vllm serve m", "command-line", "shell"),
        ("command.txt", "vllm serve m", "command-line", "shell"),
        ("start", "#!/bin/bash\nvllm serve m", "command-line", "shell"),
        ("settings", '{"model": "x"}', "model.json", "file"),
        ("container", "# x\nFROM a\nCMD vllm serve m", "command-line", "dockerfile"),
        ("unit", "[Unit]\n[Service]\nExecStart=vllm serve m", "command-line", "systemd"),
        ("manifest", "services:\n  a: {image: vllm/vllm-openai}", "command-line", "compose"),
        ("variables", "# x\nMAX_MODEL_LEN=1\n", "env-file", "file"),
    ],
)
def test_kinds_by_name_and_text(tmp_path: Path, name: str, content: str, kind: str, origin: str) -> None:
    config = read_one(write(tmp_path / name, content))
    assert (config.kind, config.origin) == (kind, origin)


def test_a_directory_gives_only_what_speaks_of_a_server(tmp_path: Path) -> None:
    write(tmp_path / "a/1/model.json", '{"model": "x"}')
    write(tmp_path / "a/1/config.json", "{}")
    write(tmp_path / "b/run.sh", "vllm serve m")
    write(tmp_path / "b/build.sh", "make 'all")
    write(tmp_path / "b/chart.yaml", "{{ broken")
    write(tmp_path / "b/tool.py", "def (")
    write(tmp_path / ".git/run.sh", "vllm serve m")
    result = read_paths([tmp_path])
    assert result.failures == ()
    assert [Path(config.path or "").name for config in result.configs] == ["model.json", "run.sh"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Dockerfile", 'FROM a\nCMD ["llmpack", "serve", "m"]\n'),
        ("compose.yaml", "services:\n  a:\n    image: b\n    command: ['llmpack', 'serve', 'm']\n"),
        ("compose.yaml", "services:\n  a:\n    image: b\n    command:\n    - llmpack\n    - serve\n    - m\n"),
    ],
)
def test_a_command_that_is_a_list_speaks_of_a_server_too(tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path / name, content)
    (config,) = read_paths([tmp_path]).configs
    assert (config.target, values_of(config)) == ("llmpack", {"model": "m"})


def test_another_tools_model_json_is_no_config(tmp_path: Path) -> None:
    other = write(tmp_path / "web/model.json", '{"format": "layers-model", "weightsManifest": []}')
    write(tmp_path / "a/1/model.json", '{"model": "x", "format": 1}')
    assert [Path(config.path or "").parent.name for config in read_paths([tmp_path]).configs] == ["1"]
    assert [config.path for config in read_paths([other]).configs] == [str(other)]


def test_a_broken_file_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path / "a/model.json", "{")
    write(tmp_path / "b/model.json", '{"model": 1}')
    result = read_paths([tmp_path, tmp_path / "b/model.json", tmp_path / "missing"])
    assert [config.path for config in result.configs] == [str(tmp_path / "b/model.json")]
    assert [failure.path for failure in result.failures] == [str(tmp_path / "a/model.json"), str(tmp_path / "missing")]


def test_a_directory_without_configs_says_so(tmp_path: Path) -> None:
    (failure,) = read_paths([tmp_path]).failures
    assert "no serving config lies below" in failure.message


def test_models_of_a_repository_know_each_other(tmp_path: Path) -> None:
    write(tmp_path / "m/vllm/config.pbtxt", 'backend: "vllm"')
    write(tmp_path / "m/vllm/1/model.json", '{"model": "x", "max_num_seqs": 4}')
    write(tmp_path / "m/other/config.pbtxt", 'name: "other"')
    configs = {
        config.kind + (config.triton.directory if config.triton else ""): config
        for config in read_paths([tmp_path]).configs
    }
    model_json = configs[f"model.json{tmp_path}/m/vllm"]
    assert values_of(model_json)["max_num_seqs"] == 4
    assert model_json.triton is not None
    assert (model_json.triton.backend, model_json.triton.version_files) == ("vllm", ("1/model.json",))
    assert [model.name for model in model_json.siblings] == ["other", None]


def test_a_model_json_given_alone_finds_its_model(tmp_path: Path) -> None:
    write(tmp_path / "vllm/config.pbtxt", 'backend: "vllm"')
    config = read_one(write(tmp_path / "vllm/1/model.json", "{}"))
    assert config.triton is not None
    assert config.triton.backend == "vllm"


def test_an_ensemble_given_alone_finds_its_steps(tmp_path: Path) -> None:
    write(tmp_path / "step/config.pbtxt", 'name: "step"')
    write(tmp_path / "unrelated/config.pbtxt", 'name: "unrelated"')
    text = 'ensemble_scheduling { step { model_name: "step" } step { model_name: "gone" } }'
    config = read_one(write(tmp_path / "ensemble/config.pbtxt", text))
    assert [Path(model.directory).name for model in config.siblings] == ["ensemble", "step"]


def test_links_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path / "a/model.json", "{}")
    (tmp_path / "a/loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "z").symlink_to(tmp_path / "a", target_is_directory=True)
    result = read_paths([tmp_path])
    assert [config.path for config in result.configs] == [str(tmp_path / "a/model.json")]
    assert result.failures == ()


def test_a_link_to_itself_is_one_failure(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.symlink_to(path)
    assert "cannot be opened" in failure_of(path)


def test_too_deep_is_said(tmp_path: Path) -> None:
    write(tmp_path / "/".join("d" * (MAX_DEPTH + 2)) / "model.json", "{}")
    (failure,) = read_paths([tmp_path]).failures
    assert f"deeper than {MAX_DEPTH} directories" in failure.message


def _bomb() -> str:
    lines = ["additional_config:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 200)]
    return "\n".join([*lines, "max_model_len: *a199", "model: x"])


# Each takes a fraction of a second; on a machine under load this only tells bounded work from unbounded.
SOON_S = 10
RUBBISH: dict[str, tuple[str, bytes]] = {
    "nul bytes": ("model.json", b'{"a": "\0"}'),
    "binary": ("Dockerfile", os.urandom(4096) + b"\0"),
    "utf-16": ("model.json", '{"a": 1}'.encode("utf-16")),
    "latin-1": ("config.pbtxt", '# é\nname: "x"'.encode("latin-1")),
    "large": ("compose.yaml", b"x" * (MAX_FILE_BYTES + 1)),
    "deep lists": ("model.json", b"[" * 200_000),
    "deep objects": ("model.json", b'{"a":' * 40_000),
    "many values": ("model.json", b'{"a":[' + b"1," * 120_000 + b"1]}"),
    "a long backslash run": ("model.json", b'"' + b"\\" * 200_001),
    "deep messages": ("config.pbtxt", b"a{" * 100_000),
    "many fields": ("config.pbtxt", b"a:1 " * 60_000),
    "an open string": ("config.pbtxt", b'name: "' + b"x" * 200_000),
    "deep yaml": ("compose.yaml", b"[" * 200_000),
    "deep yaml blocks": ("compose.yaml", b"- " * 100_000),
    "open quotes": ("run.sh", b"vllm serve " + b"'" * 200_001),
    "many words": ("run.sh", b"vllm serve " + b"--a " * 60_000),
    "nested shells": ("run.sh", b'vllm serve "' + b'sh -c "' * 5000),
    "many lines": ("Dockerfile", b"FROM a\n" * 30_000),
    "deep python": ("run.py", b"LLM(" + b"(" * 100_000),
    "long python": ("run.py", b"LLM(a=" + b"1+" * 100_000 + b"1)"),
    "long number": ("run.py", b"LLM(a=9" + b"9" * 5000 + b")"),
    "directory as file": ("unit.service", b""),
}


@pytest.mark.parametrize("case", RUBBISH)
def test_rubbish_is_one_failure_soon(tmp_path: Path, case: str) -> None:
    name, content = RUBBISH[case]
    path = write(tmp_path / name, content)
    start = time.process_time()
    failure_of(path)
    assert time.process_time() - start < SOON_S


GROWTH: dict[str, tuple[str, str]] = {
    "yaml aliases": ("args.yaml", _bomb()),
    "shell variables": ("run.sh", "A=aaaaaaaa\n" + "A=$A$A$A$A\n" * 60 + "vllm serve $A"),
    "dockerfile variables": ("Dockerfile", "FROM a\nENV A=aaaaaaaa\n" + "ENV A=$A$A$A$A\n" * 60 + "CMD vllm serve $A"),
    "env variables": ("x.env", "A=aaaaaaaa\n" + "A=$A$A$A$A\n" * 60),
    "merges": (
        "compose.yaml",
        "a0: &a0 {x: y}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 40))
        + "services: {s: {<<: *a39, image: vllm/vllm-openai, command: --model x}}",
    ),
}


@pytest.mark.parametrize("case", GROWTH)
def test_what_would_grow_without_end_does_not(tmp_path: Path, case: str) -> None:
    name, content = GROWTH[case]
    start = time.process_time()
    config = read_one(write(tmp_path / name, content))
    assert time.process_time() - start < SOON_S
    assert len(repr(config)) < 4_000_000


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.json")
    assert "not a regular file" in failure_of(tmp_path / "model.json")


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    assert "too large" in failure_of(path)


def test_reading_loads_nothing_heavy(tmp_path: Path) -> None:
    write(tmp_path / "m/config.pbtxt", 'backend: "vllm"')
    write(tmp_path / "compose.yaml", "services: {a: {image: vllm/vllm-openai}}")
    write(tmp_path / "Dockerfile", "FROM a\nCMD vllm serve m")
    code = (
        "import sys\nfrom llmpack.validate.readers.read import read_paths\n"
        f"result = read_paths([{str(tmp_path)!r}])\nassert len(result.configs) == 3, result\n"
        "print(sorted({'torch', 'transformers', 'onnx', 'onnxruntime', 'grpc', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SAMPLES = {
    "model.json": '{\n  "model": "x",\n  "max_num_seqs": 4\n}\n',
    "config.pbtxt": 'name: "x" # c\ninput [ { name: "a" dims: [ -1 ] } ]\nparameters { key: "k" value { } }\n',
    "run.sh": 'A=4\nvllm serve m \\\n  --n ${A:-5} --s \'{"a": 1}\' "$A" > log 2>&1 &\n',
    "Dockerfile": 'ARG T=1\nFROM a:${T}\nENV A=4 B="c d"\nCMD ["vllm", "serve", \\\n # c\n "--n", "4"]\n',
    "compose.yaml": "services:\n  a: &a\n    image: vllm/vllm-openai\n    command: >\n      --n 4\n      $A\n  b: *a\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [vllm, serve], args: ['--n', $(A)]}]}\n",
    "x.env": "A=1 # c\nexport B='2'\nC=${A}\n",
    "run.py": "n = 4\nLLM('m', max_num_seqs=n, seed=1)\n",
    "x.service": '[Service]\nEnvironment=A=4 "B=c"\nExecStart=-vllm serve m \\\n  --n $A\n',
}
SLIPS = st.sampled_from(
    [*"\"'\\\n$}{[]()<>&*|#:,-=\r\f\t`%!?\u00a0\u2028\u0085é0", "${", "$(", "<<", "<<: ", "&a ", "*a ", "- "]
)


@given(st.sampled_from(sorted(SAMPLES)), st.lists(st.tuples(st.floats(0, 1), SLIPS, st.integers(0, 5)), max_size=4))
def test_no_slip_of_the_keyboard_escapes(name: str, slips: list[tuple[float, str, int]]) -> None:
    text = SAMPLES[name]
    for where, slip, length in slips:
        at = int(where * len(text))
        text = text[:at] + slip + text[at + length :]
    with TemporaryDirectory() as directory:
        path = write(Path(directory) / name, text)
        result = read_paths([path])
    assert result.configs or result.failures
    for config in result.configs:
        for setting in config.settings:
            if setting.span and setting.is_known and config.kind == "command-line" and isinstance(setting.value, str):
                assert text.encode()[setting.span.start : setting.span.end].decode() == setting.value
