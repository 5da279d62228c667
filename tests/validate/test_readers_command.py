"""Command lines: words, variables, flags and the server that they start."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.validate.model import ServingConfig, Span
from llmpack.validate.readers.flag_shapes import flag_shapes
from llmpack.validate.readers.shell import split_commands
from llmpack.validate.readers.shell_script import read_command_text
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import map_whole
from tests.validate.reading import bytes_at, failure_of, read_one, setting_of, values_of, write

TUTORIAL = """$ python -m vllm.entrypoints.openai.api_server \\
  --model meta-llama/Llama-2-7b-chat-hf \\
  --device rbln \\
  --max-num-seqs 4 \\
  --compiled-model-dir </ABSOLUTE/PATH/TO/rbln-Llama-2-7b-chat-hf> \\
  --max-model-len 4096
"""


def words_of(text: str) -> list[list[str]]:
    source = SourceText(text, "x")
    return [[word.text for word in command.words] for command in split_commands(source, map_whole(source), {})]


def command(text: str) -> ServingConfig:
    (config,) = read_command_text(text)
    return config


def test_tutorial_command_with_places(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "serve.sh", TUTORIAL))
    assert (config.kind, config.origin, config.target) == ("command-line", "shell", "vllm-rbln")
    setting = setting_of(config, "max_num_seqs")
    assert (setting.value, setting.spelling) == ("4", "--max-num-seqs")
    assert (setting.location.line, setting.location.column, setting.location.pointer) == (4, 18, "--max-num-seqs")
    assert bytes_at(config, setting.span) == "4"
    assert bytes_at(config, setting.key_span) == "--max-num-seqs"
    assert bytes_at(config, setting.entry_span) == " \\\n  --max-num-seqs 4"
    assert values_of(config)["compiled_model_dir"] == "</ABSOLUTE/PATH/TO/rbln-Llama-2-7b-chat-hf>"


def test_text_without_a_file_has_no_spans() -> None:
    setting = setting_of(command("vllm serve m --seed 1"), "seed")
    assert (setting.span, setting.location.path, setting.location.line) == (None, None, 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--max-num-seqs 4", {"max_num_seqs": "4"}),
        ("--max_num_seqs 4", {"max_num_seqs": "4"}),
        ("--max-num-seqs=4", {"max_num_seqs": "4"}),
        ("--gpu-memory-utilization=", {"gpu_memory_utilization": ""}),
        ("--temperature -1", {"temperature": "-1"}),
        ("--enforce-eager --port 1", {"enforce_eager": True, "port": "1"}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--unknown --port 1", {"unknown": True, "port": "1"}),
        ("-tp 2", {"tensor_parallel_size": "2"}),
        ("-tp=2", {"tensor_parallel_size": "2"}),
        ("-q awq", {"quantization": "awq"}),
        ("-O3", {"compilation_config": "3"}),
        ("-O.level=3 --port 1", {"compilation_config": {"level": 3}, "port": "1"}),
        ("-cc.mode 3 --port 1", {"compilation_config": {"mode": 3}, "port": "1"}),
        ("-spec-draft-tp 2", {"speculative_draft_tensor_parallel_size": "2"}),
        ("--kv-cache-metrics --port 1", {"kv_cache_metrics": True, "port": "1"}),
        ("--allowed-origins '[\"*\"]' --port 1", {"allowed_origins": ["*"], "port": "1"}),
        ("--served-model-name a b --port 1", {"served_model_name": ["a", "b"], "port": "1"}),
        ("""--speculative-config '{"k": [1, true]}'""", {"speculative_config": {"k": [1, True]}}),
        ("--speculative-config '{k}'", {"speculative_config": "{k}"}),
        ("--cc.level 3 --port 1 --cc.pass.fuse true", {"cc": {"level": 3, "pass": {"fuse": True}}, "port": "1"}),
        ("--port 1 -- --seed 2", {"port": "1"}),
        ("--chat-template 'a b'\"c\"\\ d", {"chat_template": "a bc d"}),
        ("--a $'x\\ty'", {"a": "x\ty"}),
        ("--port 1 > log.txt 2>&1 &", {"port": "1"}),
        ("--port 1 # --seed 2", {"port": "1"}),
        ("--port 1#2", {"port": "1#2"}),
    ],
)
def test_flags(arguments: str, expected: dict[str, object]) -> None:
    assert values_of(command(f"vllm serve m {arguments}")) == {"model": "m", **expected}


@pytest.mark.parametrize("prefix", ["", "$ ", "sudo ", "sudo -E ", "$ sudo -n "])
def test_prompts_and_sudo_are_no_part_of_the_command(prefix: str) -> None:
    text = f"{prefix}docker run --shm-size=1g -p 8000:8000 nvcr.io/nvidia/tritonserver:24.01-vllm-python-py3"
    container = command(text).container
    assert container is not None
    assert (container.shm_size, [port.host for port in container.ports]) == ("1g", [8000])


def test_repeated_flags_are_all_kept() -> None:
    found = command("llmpack serve m --port 1 --port=2 --po_rt 3").settings[1:]
    assert [(item.name, item.value, item.spelling) for item in found] == [
        ("port", "1", "--port"),
        ("port", "2", "--port"),
        ("po_rt", "3", "--po_rt"),
    ]


@pytest.mark.parametrize(
    ("script", "value", "is_known"),
    [
        ("N=4\nvllm serve m --n $N", "4", True),
        ("N=4; vllm serve m --n ${N}", "4", True),
        ("export N=4\nvllm serve m --n $N", "4", True),
        ("A=4\nN=$A\nvllm serve m --n $N", "4", True),
        ("vllm serve m --n $N", "$N", False),
        ("N=5 vllm serve m --n $N", "$N", False),
        ("vllm serve m --n ${N:-4}", "4", True),
        ("vllm serve m --n ${N:=4}", "4", True),
        ("vllm serve m --n ${1:-4}", "4", True),
        ("N=5\nvllm serve m --n ${N:-4}", "5", True),
        ("vllm serve m --n ${N:?missing}", "${N:?missing}", False),
        ("if x; then N=4; fi\nvllm serve m --n $N", "$N", False),
        ("for N in 1 2; do vllm serve m --n $N; done", "$N", False),
        ("vllm serve m --n $(nproc)", "$(nproc)", False),
        ("vllm serve m --n `nproc`", "`nproc`", False),
        ("vllm serve m --n '$N'", "$N", True),
        ("vllm serve m --n a$N", "a$N", False),
    ],
)
def test_variables_are_resolved_or_unknown(script: str, value: str, is_known: bool) -> None:
    setting = setting_of(command(script), "n")
    assert (setting.value, setting.is_known) == (value, is_known)


def test_what_can_be_replaced(tmp_path: Path) -> None:
    text = 'N=4\nvllm serve m --a ${X:-4096} --b "7" --c $N --d=\'8\' --e x"y" --f é --g 9\n'
    config = read_one(write(tmp_path / "run.sh", text))
    spans = {item.name: bytes_at(config, item.span) for item in config.settings}
    assert spans == {"model": "m", "a": "4096", "b": "7", "c": None, "d": "8", "e": None, "f": "é", "g": "9"}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("vllm serve m", "vllm"),
        ("/usr/bin/python3.11 -u -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("exec nohup vllm serve m &", "vllm"),
        ("CUDA_VISIBLE_DEVICES=0 sudo -E env X=1 vllm serve m", "vllm"),
        ("uv run vllm serve m", "vllm"),
        ("bash -lc 'exec vllm serve m'", "vllm"),
        ("cd /x && vllm serve m", "vllm"),
        ("vllm serve m --device rbln", "vllm-rbln"),
        ("python -m vllm.entrypoints.api_server --compiled-model-dir /a", "vllm-rbln"),
        ("llmpack serve /a", "llmpack"),
        ("python -m llmpack serve /a", "llmpack"),
        ("tritonserver --model-repository=/m", "unknown"),
    ],
)
def test_servers_are_found(text: str, target: str) -> None:
    assert command(text).target == target


@pytest.mark.parametrize(
    "text",
    ["pip install vllm serve", "echo vllm serve m", "# vllm serve m", "cat <<EOF\nvllm serve m\nEOF", "vllm bench m"],
)
def test_no_server(text: str) -> None:
    assert read_command_text(text) == []


def test_docker_run() -> None:
    config = command(
        "sudo docker run --gpus all -it --rm -p8001:8001 -p 127.0.0.1:80:8000/tcp --shm-size=1G --ulimit memlock=-1 "
        "-e A=b -v $PWD:/w --ipc host vllm/vllm-openai:v0.6.3 --model x --max-num-seqs 4".removeprefix("sudo ")
    )
    container = config.container
    assert container is not None
    assert config.is_containerised
    assert (config.target, config.engine_release) == ("vllm", "0.6.3")
    assert values_of(config) == {"model": "x", "max_num_seqs": "4"}
    assert [(item.name, item.value) for item in config.environment] == [("A", "b")]
    assert (container.image, container.shm_size, container.is_host_ipc) == ("vllm/vllm-openai:v0.6.3", "1G", True)
    assert [(port.host, port.container) for port in container.ports] == [(8001, 8001), (80, 8000)]
    assert container.ulimits == (("memlock", "-1"),)


def test_docker_run_of_a_server_image_without_a_command() -> None:
    config = command("docker run -it --shm-size=1g nvcr.io/nvidia/tritonserver:23.08-py3 bash")
    assert config.settings == ()
    assert config.container is not None
    assert config.container.shm_size == "1g"


@pytest.mark.parametrize("text", ["vllm serve 'm", 'vllm serve "m', 'vllm serve m --a "b\n'])
def test_broken_in_one_way(tmp_path: Path, text: str) -> None:
    assert "quote is not closed" in failure_of(write(tmp_path / "run.sh", text))


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8), min_size=1, max_size=6)


@given(WORDS)
def test_quoted_words_come_back(words: list[str]) -> None:
    text = "run " + shlex.join(words)
    assert words_of(text) == [["run", *words]]


@given(st.text(alphabet="ab '\"\\", max_size=14))
def test_agrees_with_the_standard_library(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        return
    if text.endswith("\\"):
        return
    assert words_of(text) == ([expected] if expected else [])


SHAPED = flag_shapes().boolean | flag_shapes().many_valued
NAMES = st.from_regex(r"[a-z]{2,6}(_[a-z]{1,5}){0,2}", fullmatch=True).filter(lambda name: not name.startswith("no_"))
FLAG_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=8).filter(
    lambda text: text[0] not in "-{["
)


@given(st.dictionaries(NAMES, FLAG_VALUES, max_size=5), st.booleans(), st.booleans())
def test_flags_come_back(settings: dict[str, str], dashes: bool, equals: bool) -> None:
    settings = {name: text for name, text in settings.items() if name not in SHAPED}
    words = ["vllm", "serve", "m"]
    for name, text in settings.items():
        flag = "--" + (name.replace("_", "-") if dashes else name)
        words += [f"{flag}={text}"] if equals else [flag, text]
    assert values_of(command(shlex.join(words))) == {"model": "m", **settings}


@given(st.dictionaries(NAMES, st.from_regex(r"[a-z0-9/.é]{1,8}", fullmatch=True), min_size=1, max_size=4))
def test_spans_of_a_file_give_the_values(settings: dict[str, str]) -> None:
    from llmpack.validate.readers.shell_script import read_shell_script

    settings = {name: text for name, text in settings.items() if name not in SHAPED}
    text = "vllm serve m" + "".join(f" \\\n  --{name} '{value}'" for name, value in settings.items())
    (config,) = read_shell_script(SourceText(text, "x"))
    for setting in config.settings:
        assert isinstance(setting.span, Span)
        assert text.encode()[setting.span.start : setting.span.end].decode() == setting.value
