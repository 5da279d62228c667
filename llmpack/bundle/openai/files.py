"""The files of an OpenAI bundle, as text. The same artifact and plan give the same bytes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from llmpack import __version__
from llmpack.bundle.openai.command import DEFAULTS, SHUTDOWN_TIMEOUT_S, exec_words, shell_command
from llmpack.bundle.openai.containers import (
    CACHE_DIR,
    HEALTH_COMMAND,
    HUB_TOKEN_VARIABLE,
    USER_ID,
    build_compose,
    find_mount,
)
from llmpack.bundle.openai.kubernetes import build_objects
from llmpack.bundle.openai.options import ARTIFACT_DIR, OpenAIPlan
from llmpack.bundle.openai.resources import MIB, STARTUP_S
from llmpack.bundle.openai.unit import build_unit, bundle_place, render_unit
from llmpack.bundle.rendering import BundleFile, render_template
from llmpack.bundle.triton_files import RBLN_INDEX

_PYTHON_IMAGE = "python:3.12.12-slim-bookworm"
_RBLN_PYTHON_IMAGE = "python:3.10.19-slim-bookworm"  # Source: the vendor's guide, whose container has Python 3.10
_LIGHT_NOTE = "No torch, no transformers: serving needs neither."
_LIBRARIES_NOTE = "torch runs the artifact's libraries; no transformers and no compiler are needed."
_PROMPTS = {True: "What is the capital of France?", False: "Once upon a time"}
_ROUTES = {True: "chat/completions", False: "completions"}

Values = dict[str, str]


class _PlainDumper(yaml.SafeDumper):  # type: ignore[misc]  # published without types
    """Writes what stands twice twice: people edit these files."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True


def build_files(plan: OpenAIPlan) -> list[BundleFile]:
    """All files but the artifact, by path."""
    values = _values(plan)
    files = [
        _rendered("serve.sh", values, is_executable=True),
        BundleFile("Dockerfile", _render("Dockerfile", values)),
        BundleFile(".dockerignore", _render("dockerignore", values)),
        BundleFile(".env.example", _render("env.example", values)),
        BundleFile("compose.yaml", _yaml(plan, [build_compose(plan)])),
        BundleFile("kubernetes.yaml", _yaml(plan, build_objects(plan))),
        BundleFile(unit_name(plan), _header(plan) + render_unit(build_unit(plan))),
        *(_rendered(name, values, is_executable=True) for name in ("client.sh", "client.py", "client.mjs", "smoke.sh")),
        _rendered("README.md", values),
    ]
    return sorted(files, key=lambda file: file.path)


def unit_name(plan: OpenAIPlan) -> str:
    """The file of the systemd unit."""
    return f"{plan.command.engine}.service"


def _render(name: str, values: Values) -> str:
    return render_template(f"openai/{name}", values)


def _rendered(name: str, values: Values, *, is_executable: bool = False) -> BundleFile:
    return BundleFile(name, _render(name, values), is_executable)


def _header(plan: OpenAIPlan) -> str:
    """Also what `llmpack validate` learns the server's release from."""
    return f"# For {plan.command.requirement}; written by llmpack {__version__} from what was compiled.\n"


def _yaml(plan: OpenAIPlan, documents: Sequence[dict[str, Any]]) -> str:
    text: str = yaml.dump_all(documents, Dumper=_PlainDumper, sort_keys=False, width=1000)
    return _header(plan) + text


def _values(plan: OpenAIPlan) -> Values:
    values = _command_values(plan) | _install_values(plan) | _client_values(plan) | _readme_values(plan)
    engine = "llmpack" if plan.command.engine == "llmpack" else "vllm"
    pieces = {"CHECK": f"check_{engine}", "ASK": "ask"}
    values |= {name: _render(piece, values).rstrip("\n") for name, piece in pieces.items()}
    values["SMOKE_CHAT"] = _render("smoke_chat", values) if plan.has_chat_template else ""
    values["FILL_CLAIM"] = _render("fill_claim", values) if plan.model_dir else ""
    return values


def _command_values(plan: OpenAIPlan) -> Values:
    command, mount = plan.command, find_mount(plan)
    artifact = f'"$here/{ARTIFACT_DIR}"' if plan.is_artifact_inside else shlex.quote(str(plan.model_dir))
    return {
        "LLMPACK_VERSION": __version__,
        "MODEL_NAME": plan.model_name,
        "REQUIREMENT": command.requirement,
        "PROGRAM": f"`{' '.join(command.program)}`",
        "VARIABLES": command.variables,
        "KEY_VARIABLE": command.api_key_variable,
        "HOST": DEFAULTS.host,
        "PORT": str(DEFAULTS.port),
        "LOCATE": 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n' if plan.is_artifact_inside else "",
        "COMMAND": shell_command(command, artifact),
        "EXEC_COMMAND": json.dumps(exec_words(command, mount.inside if mount else "")),
        "HEALTH_COMMAND": json.dumps(HEALTH_COMMAND),
        "USER_ID": str(USER_ID),
        "STARTUP_S": str(STARTUP_S),
        "HUB_VARIABLE": f"\n# For gated models of the hub:\n{HUB_TOKEN_VARIABLE}=\n" if plan.loads_from_hub else "",
    }


def _install_values(plan: OpenAIPlan) -> Values:
    command = plan.command
    images = {
        "llmpack": _PYTHON_IMAGE,
        "vllm": f"vllm/vllm-openai:v{command.release}",
        "vllm-rbln": _RBLN_PYTHON_IMAGE,
    }
    index = f"--extra-index-url {RBLN_INDEX} " if command.engine == "vllm-rbln" else ""
    values = {
        "REQUIREMENT": command.requirement,
        "TORCH_INDEX": plan.torch_index,
        "INSTALL_NOTE": _LIBRARIES_NOTE if plan.torch_index else _LIGHT_NOTE,
        "PIP_ARGUMENTS": index + command.requirement,
        "ADD_USER": f"useradd --uid {USER_ID} --user-group --no-create-home --shell /usr/sbin/nologin server",
        "ADD_CACHE": f"install --directory --owner={USER_ID} --group={USER_ID} {CACHE_DIR}",
    }
    installs = {"llmpack": "install_llmpack", "vllm": "install_vllm", "vllm-rbln": "install_rbln"}
    return values | {"BASE_IMAGE": images[command.engine], "INSTALL": _render(installs[command.engine], values)}


def _client_values(plan: OpenAIPlan) -> Values:
    is_chat = plan.has_chat_template
    question = '"messages": [{"role": "user", "content": "$prompt"}]' if is_chat else '"prompt": "$prompt"'
    return {
        "PROMPT": _PROMPTS[is_chat],
        "ROUTE": _ROUTES[is_chat],
        "QUESTION": question,
        "IS_CHAT_PYTHON": str(is_chat),
        "IS_CHAT_JSON": json.dumps(is_chat),
        "SMOKE_EXTRA": ", a conversation" if is_chat else "",
    }


def _readme_values(plan: OpenAIPlan) -> Values:
    is_ours = plan.command.engine == "llmpack"
    program = "llmpack" if is_ours else "a python3 with vllm"
    drains = f"lets running requests finish, for {SHUTDOWN_TIMEOUT_S} seconds at most"
    knows_drain = any(flag == "--shutdown-timeout" for flag, _ in plan.command.arguments)
    return {
        "ARTIFACT_FACTS": plan.artifact_facts,
        "LAYOUT": _describe_layout(plan),
        "SERVE_NEEDS": f"needs {program} on PATH",
        "IMAGE": f"`{plan.image}`",
        "UNIT": unit_name(plan),
        "DRAIN": drains if knows_drain else "ends the server, and with it what still runs",
        "RESOURCE_NAME": plan.resource_name,
        "HUB_SECRET": " --from-literal=hf-token=..." if plan.loads_from_hub else "",
        "PLACE": bundle_place(plan),
        "PROGRAM_PLACE": f"{program} in `{bundle_place(plan)}/venv` or on the system's PATH",
        "FILES": ARTIFACT_DIR if plan.is_artifact_inside else str(plan.model_dir),
        "MEMORY_MIB": str(plan.resources.memory_mib),
        "MEMORY_USE": (
            "no more is needed, and no more allowed by kubernetes.yaml, compose.yaml and the unit"
            if plan.resources.is_exact
            else "an allowance, asked for in kubernetes.yaml and compose.yaml"
        ),
        "MEMORY_TABLE": "\n".join(f"| {name} | {-(-size // MIB)} |" for name, size in plan.resources.parts),
    }


def _describe_layout(plan: OpenAIPlan) -> str:
    if plan.is_artifact_inside:
        return f"The artifact is inside, at `{ARTIFACT_DIR}`: this directory may be moved anywhere."
    if plan.model_dir:
        return f"What is served is not inside; the files name it: `{plan.model_dir}`."
    return "The server fetches the model from the hub."
