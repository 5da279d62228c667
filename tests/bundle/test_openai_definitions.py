"""Dockerfile, Compose, Kubernetes and systemd files of OpenAI bundles before their own linters and schemas."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from llmpack.bundle.openai.emit import emit_openai
from tests.bundle.openai_cases import CASES, artifact_for

SCHEMA = Path(__file__).parent / "schemas" / "compose-spec.json"
KUBERNETES_RELEASES = ("1.25", "1.30", "1.37")

# Source: systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.resource-control(5), systemd.kill(5) of 252.
DIRECTIVES = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        *("Type", "ExecStart", "Restart", "RestartSec", "TimeoutStopSec", "KillMode"),
        *(
            "DynamicUser",
            "WorkingDirectory",
            "Environment",
            "EnvironmentFile",
            "CacheDirectory",
            "UMask",
            "LimitNOFILE",
        ),
        *("MemoryMax", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices"),
        *("ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"),
        *("ProtectClock", "ProtectHostname", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime"),
        *("RestrictSUIDSGID", "LockPersonality", "CapabilityBoundingSet", "SystemCallArchitectures"),
        *("SystemCallFilter", "LimitNOFILE"),
    },
    "Install": {"WantedBy"},
}
MAY_REPEAT = {"Environment"}

pytestmark = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def bundle(case: str, tmp_path: Path) -> Path:
    emit_openai(artifact_for(case, tmp_path), tmp_path / "bundle", CASES[case])
    return tmp_path / "bundle"


def test_hadolint_finds_nothing_in_the_dockerfile(bundle: Path) -> None:
    command = [str(Path(sys.executable).with_name("hadolint")), "--no-color", str(bundle / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


def read_compose(bundle: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((bundle / "compose.yaml").read_text(encoding="utf-8"))
    return document


def test_the_compose_file_is_of_the_specification(bundle: Path) -> None:
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    document = read_compose(bundle)
    assert list(validator.iter_errors(document)) == []
    document["services"]["server"]["stop_grace_periods"] = "1s"
    assert len(list(validator.iter_errors(document))) == 1  # the schema is strict enough to find a misspelling


def read_objects(bundle: Path) -> dict[str, Any]:
    documents = yaml.safe_load_all((bundle / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("release", KUBERNETES_RELEASES)
def test_kubernetes_objects_are_of_its_schema(bundle: Path, release: str) -> None:
    objects = read_objects(bundle)
    for document in objects.values():
        kubernetes_validate.validate(document, release, strict=True)
    objects["Deployment"]["spec"]["template"]["spec"]["gracePeriod"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="gracePeriod"):
        kubernetes_validate.validate(objects["Deployment"], release, strict=True)


def test_kubernetes_objects_fit_together(bundle: Path) -> None:
    objects = read_objects(bundle)
    claim, deployment, service = (objects[kind] for kind in ("PersistentVolumeClaim", "Deployment", "Service"))
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["files"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}


def test_the_home_directory_can_be_written_to(bundle: Path) -> None:
    """Engines keep what they download and compile there, and the image itself is read-only."""
    service = read_compose(bundle)["services"]["server"]
    writable = [volume.partition(":")[2] for volume in service["volumes"]]
    writable += [path.partition(":")[0] for path in service["tmpfs"]]
    assert service["read_only"]
    assert service["environment"]["HOME"] in writable
    (container,) = read_objects(bundle)["Deployment"]["spec"]["template"]["spec"]["containers"]
    (home,) = [variable["value"] for variable in container["env"] if variable["name"] == "HOME"]
    assert home in [mount["mountPath"] for mount in container["volumeMounts"] if "readOnly" not in mount]


def test_what_runs_gets_its_time_to_finish(bundle: Path) -> None:
    """Kubernetes counts the hook in; the server's own timeout must end before it is killed."""
    spec = read_objects(bundle)["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    hook_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    given = [word for word in container["command"] if word.startswith("--shutdown-timeout=")]
    timeout_s = int(given[0].partition("=")[2]) if given else 0
    assert spec["terminationGracePeriodSeconds"] > hook_s + timeout_s
    (unit,) = bundle.glob("*.service")
    assert int(read_unit(unit)["Service"]["TimeoutStopSec"][0]) > timeout_s
    assert int(read_compose(bundle)["services"]["server"]["stop_grace_period"].rstrip("s")) > timeout_s


def test_the_example_has_every_variable_that_is_read(bundle: Path) -> None:
    example = (bundle / ".env.example").read_text(encoding="utf-8")
    offered = set(re.findall(r"^(\w+)=", example, flags=re.MULTILINE))
    (unit,) = bundle.glob("*.service")
    for path in (bundle / "compose.yaml", unit):
        read = set(re.findall(r"\$\{(\w+)", path.read_text(encoding="utf-8")))
        assert {name for name in read if name.endswith(("_HOST", "_PORT"))}
        assert read <= offered


def test_no_file_holds_a_key(bundle: Path) -> None:
    (container,) = read_objects(bundle)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "secretKeyRef" in container["env"][0]["valueFrom"]
    assert "_API_KEY=\n" in (bundle / ".env.example").read_text(encoding="utf-8")


def read_unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Sections of directives with their values; a line that is neither is an error."""
    sections: dict[str, dict[str, list[str]]] = {}
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            current.setdefault(name, []).append(value)
    return sections


def test_the_unit_is_of_systemd(bundle: Path) -> None:
    (path,) = bundle.glob("*.service")
    unit = read_unit(path)
    assert unit.keys() == DIRECTIVES.keys()
    for section, directives in unit.items():
        assert directives.keys() <= DIRECTIVES[section]
        assert [name for name, values in directives.items() if len(values) > 1 and name not in MAY_REPEAT] == []
    words = shlex.split(unit["Service"]["ExecStart"][0])
    assert words[0] == "/usr/bin/env"
    assert words[-4:] == [
        *("--host", next(word for word in words if word.endswith("_HOST}"))),
        *("--port", next(word for word in words if word.endswith("_PORT}"))),
    ]
    if analyze := shutil.which("systemd-analyze"):  # where systemd is installed it has the last word
        done = subprocess.run([analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
