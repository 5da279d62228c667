"""Dockerfiles, compose files, Kubernetes manifests, env files, systemd units and YAML of engine arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.validate.model import ServingConfig
from llmpack.validate.readers.read import read_paths
from tests.validate.reading import bytes_at, failure_of, read_one, setting_of, values_of, write


def read_all(path: Path) -> list[ServingConfig]:
    result = read_paths([path])
    assert result.failures == ()
    return list(result.configs)


DOCKERFILE = """# syntax=docker/dockerfile:1
ARG TAG=v0.6.3
FROM vllm/vllm-openai:${TAG} AS server
ENV LEN=4096 NAME="a b"
ENTRYPOINT ["vllm", "serve"]
# the flags
CMD ["meta/x", \\
  # inside
  "--max-model-len", "4096", "--max-num-seqs=4"]
"""


def test_dockerfile_exec_form_with_places(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "Dockerfile", DOCKERFILE))
    assert (config.origin, config.target, config.engine_release) == ("dockerfile", "vllm", "0.6.3")
    assert config.is_containerised
    assert values_of(config) == {"model": "meta/x", "max_model_len": "4096", "max_num_seqs": "4"}
    assert [(item.name, item.value) for item in config.environment] == [("LEN", "4096"), ("NAME", "a b")]
    setting = setting_of(config, "max_model_len")
    assert (setting.location.line, bytes_at(config, setting.span)) == (9, "4096")
    assert bytes_at(config, setting_of(config, "max_num_seqs").span) == "4"
    assert bytes_at(config, setting_of(config, "max_num_seqs").entry_span) == ', "--max-num-seqs=4"'
    assert setting_of(config, "model").entry_span is None
    assert config.container is not None
    assert (config.container.image, config.container.starts_container) == ("vllm/vllm-openai:v0.6.3", False)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ("CMD vllm serve m --n 4", {"model": "m", "n": "4"}),
        ("CMD vllm serve m \\\n  # note\n  --n 4", {"model": "m", "n": "4"}),
        ("ENV N 4\nCMD vllm serve m --n $N", {"model": "m", "n": "4"}),
        ("ENV N=4\nCMD vllm serve m --n ${N}", {"model": "m", "n": "4"}),
        ("ARG N=4\nENV M=$N\nCMD vllm serve m --n ${M:-5}", {"model": "m", "n": "4"}),
        ('ENTRYPOINT ["sh", "-c", "exec vllm serve m --n 4"]', {"model": "m", "n": "4"}),
        ('ENV N=4\nCMD ["vllm", "serve", "$N"]', {"model": "$N"}),
        ("ENTRYPOINT vllm serve m\nCMD --n 4", {"model": "m"}),
        ('CMD ["vllm", "serve", "a"]\nCMD ["vllm", "serve", "b"]', {"model": "b"}),
        ("cmd vllm serve m", {"model": "m"}),
        ("RUN <<EOF\nCMD vllm serve é\nEOF\nCMD vllm serve m", {"model": "m"}),
        ("CMD vllm serve m\nCOPY <<-'A' <<B /x/\nCMD vllm serve a\n\tA\nCMD vllm serve b\nB", {"model": "m"}),
        ("RUN cat <<<EOF\nCMD vllm serve m", {"model": "m"}),
        ("RUN <<NEVER\nCMD vllm serve m", {"model": "m"}),
    ],
)
def test_dockerfile_forms(tmp_path: Path, instructions: str, expected: dict[str, object]) -> None:
    assert values_of(read_one(write(tmp_path / "Dockerfile", f"FROM python:3.11\n{instructions}\n"))) == expected


def test_the_escape_directive_and_places_behind_a_here_document(tmp_path: Path) -> None:
    text = "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nRUN <<E\né é\nE\nCMD vllm serve m `\n  --n 8\n"
    config = read_one(write(tmp_path / "Dockerfile", text))
    assert values_of(config) == {"model": "m", "n": "8"}
    assert bytes_at(config, setting_of(config, "n").span) == "8"
    assert setting_of(config, "n").location.line == 8


def test_each_stage_of_a_dockerfile_is_read(tmp_path: Path) -> None:
    text = "FROM a\nRUN pip install vllm==0.5.1\nCMD vllm serve x\nFROM b\nCMD llmpack serve y\n"
    found = read_all(write(tmp_path / "Dockerfile", text))
    assert [(config.target, config.engine_release) for config in found] == [("vllm", "0.5.1"), ("llmpack", None)]


COMPOSE = """x-base: &base
  image: vllm/vllm-openai:v0.7.0   # pinned
  shm_size: 2gb
services:
  flags:
    <<: *base
    command: --model x --max-num-seqs ${N:-4} --max-model-len $LEN --seed $$S
    ports: ["8000:8000", {target: 9, published: "90"}]
    ulimits: {memlock: -1, nofile: {soft: 1, hard: 2}}
    environment:
      - VLLM_API_KEY=sk
  list:
    image: other
    command: ["llmpack", "serve", "/a", "--port", "1"]
    environment: {A: b}
    ipc: host
  folded:
    image: other
    entrypoint: >
      vllm serve x
      --max-num-seqs 4
  other: {image: postgres, command: postgres}
"""


@pytest.mark.parametrize(
    "env_file", ["vllm.env", "[vllm.env, absent.env]", "[{path: ./vllm.env, required: true}, ./broken.env]"]
)
def test_compose_env_files(tmp_path: Path, env_file: str) -> None:
    write(tmp_path / "vllm.env", "# é\nRBLN_DEVICES=0,1\nHF_TOKEN=hf_x\n")
    write(tmp_path / "broken.env", "not a variable\n")
    text = f"services: {{a: {{image: vllm/vllm-openai, env_file: {env_file}, environment: {{A: b}}}}}}"
    config = read_one(write(tmp_path / "compose.yaml", text))
    assert [(item.name, item.value) for item in config.environment] == [
        ("RBLN_DEVICES", "0,1"),
        ("HF_TOKEN", "hf_x"),
        ("A", "b"),
    ]
    place = config.environment[0].location
    assert (place.path, place.line) == (str(tmp_path / "vllm.env"), 2)


def test_compose_services(tmp_path: Path) -> None:
    write(tmp_path / ".env", "LEN=4096\n")
    flags, listed, folded = read_all(write(tmp_path / "compose.yaml", COMPOSE))
    assert (flags.target, flags.engine_release, flags.location.line) == ("vllm", "0.7.0", 7)
    assert values_of(flags) == {"model": "x", "max_num_seqs": "4", "max_model_len": "4096", "seed": "$$S"}
    assert not setting_of(flags, "seed").is_known
    assert bytes_at(flags, setting_of(flags, "max_num_seqs").span) == "4"
    assert setting_of(flags, "max_model_len").span is None
    assert flags.container is not None
    assert (flags.container.image, flags.container.shm_size) == ("vllm/vllm-openai:v0.7.0", "2gb")
    assert [(port.host, port.container) for port in flags.container.ports] == [(8000, 8000), (90, 9)]
    assert flags.container.ulimits == (("memlock", "-1"), ("nofile", "1:2"))
    assert [(item.name, item.value, item.location.line) for item in flags.environment] == [("VLLM_API_KEY", "sk", 11)]
    assert (listed.target, values_of(listed)) == ("llmpack", {"model": "/a", "port": "1"})
    assert listed.container is not None
    assert listed.container.is_host_ipc
    assert bytes_at(listed, setting_of(listed, "port").entry_span) == ', "--port", "1"'
    assert (setting_of(folded, "max_num_seqs").location.line, values_of(folded)["model"]) == (21, "x")
    assert bytes_at(folded, setting_of(folded, "max_num_seqs").span) == "4"


KUBERNETES = """apiVersion: v1
kind: Service
metadata: {name: x}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: llm
          image: other
          command: ["vllm", "serve"]
          args:
            - meta/x
            - --max-num-seqs=$(N)   # from env
            - --max-model-len
            - "4096"
            - --port=$(PORT)
            - --seed=$SEED
          env:
            - {name: N, value: "4"}
            - {name: PORT, valueFrom: {fieldRef: {fieldPath: x}}}
          ports: [{containerPort: 8000, hostPort: 80}]
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
        - name: script
          image: other
          command: [bash, -c]
          args:
            - |
              echo start
              vllm serve y \\
                --max-num-seqs 8
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
---
"""


def test_kubernetes_containers(tmp_path: Path) -> None:
    server, script = read_all(write(tmp_path / "deploy.yml", KUBERNETES))
    assert (server.origin, server.location.line) == ("kubernetes", 13)
    assert values_of(server) == {
        "model": "meta/x",
        "max_num_seqs": "4",
        "max_model_len": "4096",
        "port": "$(PORT)",
        "seed": "$SEED",
    }
    assert not setting_of(server, "port").is_known
    assert setting_of(server, "seed").is_known
    assert setting_of(server, "max_num_seqs").span is None
    assert (setting_of(server, "max_model_len").location.line, setting_of(server, "max_model_len").location.column) == (
        18,
        15,
    )
    assert bytes_at(server, setting_of(server, "max_model_len").span) == "4096"
    assert server.container is not None
    assert server.container.shm_size == "1Gi"
    assert [(port.host, port.container) for port in server.container.ports] == [(80, 8000)]
    setting = setting_of(script, "max_num_seqs")
    assert (setting.value, setting.location.line, bytes_at(script, setting.span)) == ("8", 33, "8")


CONFIG_MAP_POD = """apiVersion: v1
kind: ConfigMap
metadata: {name: limits}
data: {LEN: "4096", SEQS: "4"}
---
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: vllm/vllm-openai:v0.11.0
      envFrom: [{configMapRef: {name: limits}}, {configMapRef: {name: elsewhere}}]
      env:
        - {name: SEQS, value: "8"}
        - {name: N, valueFrom: {configMapKeyRef: {name: limits, key: LEN}}}
        - {name: S, valueFrom: {secretKeyRef: {name: limits, key: LEN}}}
      args: [--max-model-len, $(LEN), --max-num-seqs, $(SEQS), --n, $(N), --s, $(S)]
"""


def test_kubernetes_config_maps_of_the_same_file(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "pod.yaml", CONFIG_MAP_POD))
    assert values_of(config) == {"max_model_len": "4096", "max_num_seqs": "8", "n": "4096", "s": "$(S)"}
    assert not setting_of(config, "s").is_known
    assert [item.name for item in config.environment] == ["LEN", "SEQS", "SEQS", "N"]


def test_env_file(tmp_path: Path) -> None:
    text = "# c\nVLLM_MAX_NUM_SEQS=4 # x\nexport LEN=\"4096\"\nRAW='a$b'\nBOTH=${LEN}x$NO\nEMPTY=\n"
    config = read_one(write(tmp_path / "server.env", text))
    found = [(item.name, item.spelling, item.value, bytes_at(config, item.span)) for item in config.settings]
    assert config.kind == "env-file"
    assert found == [
        ("max_num_seqs", "VLLM_MAX_NUM_SEQS", "4", "4"),
        ("len", "LEN", "4096", "4096"),
        ("raw", "RAW", "a$b", "a$b"),
        ("both", "BOTH", "4096x$NO", None),
        ("empty", "EMPTY", "", None),
    ]
    assert [item.is_known for item in config.settings] == [True, True, True, False, True]
    assert (config.settings[1].location.line, config.settings[1].location.column) == (3, 13)


def test_systemd_unit(tmp_path: Path) -> None:
    start = "ExecStart=-/usr/bin/vllm serve m \\\n  --n ${A} --k 9 --port 80%i\n"
    text = f'[Service]\nEnvironment=A=4 "B=c d"\nExecStartPre=/bin/true\n{start}'
    config = read_one(write(tmp_path / "llm.service", text))
    assert (config.origin, values_of(config)) == ("systemd", {"model": "m", "n": "4", "k": "9", "port": "80%i"})
    assert not setting_of(config, "port").is_known
    assert [(item.name, item.value) for item in config.environment] == [("A", "4"), ("B", "c d")]
    assert (setting_of(config, "k").location.line, bytes_at(config, setting_of(config, "k").span)) == (5, "9")


def test_yaml_of_engine_arguments(tmp_path: Path) -> None:
    config = read_one(
        write(tmp_path / "args.yaml", 'model: x # note\nmax-model-len: 4096\nenforce-eager: true\na: "1"\n')
    )
    assert (config.kind, config.target) == ("kwargs", "vllm")
    assert values_of(config) == {"model": "x", "max_model_len": 4096, "enforce_eager": True, "a": "1"}
    assert bytes_at(config, setting_of(config, "max_model_len").span) == "4096"
    assert bytes_at(config, setting_of(config, "max_model_len").key_span) == "max-model-len"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("compose.yaml", "services:\n  a: [", "line 2, column"),
        ("compose.yaml", "services:\n\ta: 1", "line 2, column 1: not YAML"),
        ("compose.yaml", "services: {a: {command: *x}}", "no value is named &x before"),
        ("compose.yaml", "services: &a [*a]", "no value is named &a before"),
        ("compose.yaml", "{{ if x }}\nservices: {}", "render it first"),
        ("compose.yaml", 'services: {a: {image: x, command: "vllm serve \'m"}}', "single quote is not closed"),
        ("x.env", "VLLM_A=1\nnot a variable", "line 2, column 1: not NAME=value"),
        ("Dockerfile", "FROM a\nCMD vllm serve 'm", "line 2, column 16: a single quote"),
        ("llm.service", "[Service]\nExecStart=vllm serve 'm", "line 2, column 22: a single quote"),
    ],
)
def test_broken_in_one_way(tmp_path: Path, name: str, content: str, message: str) -> None:
    assert message in failure_of(write(tmp_path / name, content))
