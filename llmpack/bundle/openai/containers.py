"""What the server's container is: its user, its files and its variables; and the Compose file that starts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmpack.bundle.openai.command import DEFAULTS, exec_words
from llmpack.bundle.openai.options import ARTIFACT_DIR, OpenAIPlan
from llmpack.bundle.openai.resources import GRACE_PERIOD_S

USER_ID = 10001
"""Above the ids that distributions give out; the Dockerfile makes a user of it."""
CACHE_DIR = "/cache"
SCRATCH_DIR = "/tmp"
SHARED_MEMORY_DIR = "/dev/shm"
HUB_TOKEN_VARIABLE = "HF_TOKEN"

_ARTIFACT_INSIDE = f"/{ARTIFACT_DIR}"
HEALTH_COMMAND = (
    "python3",
    "-c",
    f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{DEFAULTS.port}/health', timeout=5)",
)
"""Succeeds when the server is well; slim images have no curl."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host that the container sees, for reading only.

    Attributes:
        host: Where it lies; relative to the bundle when it is in it.
        inside: Where the container has it.
    """

    host: str
    inside: str


def find_mount(plan: OpenAIPlan) -> Mount | None:
    """The directory with what the server loads; None when it comes from the hub."""
    if plan.model_dir is None:
        return None
    takes_artifact = any(value is None for _, value in plan.command.arguments)
    inside = _ARTIFACT_INSIDE if takes_artifact else str(plan.model_dir)
    return Mount(f"./{ARTIFACT_DIR}" if plan.is_artifact_inside else str(plan.model_dir), inside)


def container_variables(plan: OpenAIPlan) -> dict[str, str]:
    """Variables of the container that hold no secret: everything that is written goes to the volumes."""
    return {"HOME": CACHE_DIR if has_cache(plan) else SCRATCH_DIR}


def has_cache(plan: OpenAIPlan) -> bool:
    """Whether the engine keeps what it downloads and compiles; llmpack does neither."""
    return plan.resources.accelerator is not None


def build_compose(plan: OpenAIPlan) -> dict[str, Any]:
    """The Compose project; Source: Compose Specification, `services` and `deploy`."""
    mount = find_mount(plan)
    service: dict[str, Any] = {
        "build": ".",
        "image": plan.image,
        "command": [_literal(word) for word in exec_words(plan.command, mount.inside if mount else "")],
        "environment": _secrets(plan) | container_variables(plan),
        "ports": [_published_port(plan)],
        "volumes": _volumes(plan, mount),
        # Engines that compile kernels load them from there, and Docker's default forbids that.
        "tmpfs": [f"{SCRATCH_DIR}:exec" if has_cache(plan) else SCRATCH_DIR],
        "read_only": True,
        **_privileges(plan),
        "mem_limit" if plan.resources.is_exact else "mem_reservation": f"{plan.resources.memory_mib}m",
        "restart": "unless-stopped",
        "stop_grace_period": f"{GRACE_PERIOD_S}s",
    }
    service |= _device_options(plan)
    volumes: dict[str, Any] = {"volumes": {"cache": {}}} if has_cache(plan) else {}
    return {"name": plan.resource_name, "services": {"server": service}, **volumes}


def _secrets(plan: OpenAIPlan) -> dict[str, str]:
    """From `.env`, without whose key Compose starts nothing."""
    key = plan.command.api_key_variable
    secrets = {key: f"${{{key}:?Copy .env.example to .env and set it there}}"}
    return secrets | ({HUB_TOKEN_VARIABLE: f"${{{HUB_TOKEN_VARIABLE}:-}}"} if plan.loads_from_hub else {})


def _literal(text: str) -> str:
    """Text in which Compose sees no variable; Source: Compose Specification, "Interpolation"."""
    return text.replace("$", "$$")


def _volumes(plan: OpenAIPlan, mount: Mount | None) -> list[str]:
    read_only = [_literal(f"{mount.host}:{mount.inside}:ro")] if mount else []
    return [*read_only, f"cache:{CACHE_DIR}"] if has_cache(plan) else read_only


def _published_port(plan: OpenAIPlan) -> str:
    host, port = (f"{plan.command.variables}_{name}" for name in ("HOST", "PORT"))
    return f"${{{host}:-{DEFAULTS.host}}}:${{{port}:-{DEFAULTS.port}}}:{DEFAULTS.port}"


def _privileges(plan: OpenAIPlan) -> dict[str, Any]:
    """Source: vllm-rbln's guide runs the container privileged, for the devices are not visible otherwise."""
    if plan.command.engine == "vllm-rbln":
        return {"privileged": True, "user": "0:0"}
    return {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}


def _device_options(plan: OpenAIPlan) -> dict[str, Any]:
    if plan.resources.accelerator is None:
        return {}
    shared = {"shm_size": f"{plan.resources.shared_memory_bytes >> 20}m"}
    if plan.command.engine == "vllm-rbln":
        return shared
    devices = [{"driver": "nvidia", "count": plan.resources.num_accelerators, "capabilities": ["gpu"]}]
    return shared | {"deploy": {"resources": {"reservations": {"devices": devices}}}}
