"""The files of a bundle for Triton, as text. The same artifact and plan give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from llmpack import __version__
from llmpack.artifact.manifest import Manifest
from llmpack.bundle.options import EmitPlan
from llmpack.bundle.rendering import BundleFile, render_template
from llmpack.bundle.requirement import serving_requirement, torch_index_line
from llmpack.bundle.triton_config import ModelConfig, render_config
from llmpack.bundle.triton_models import (
    ARTIFACT_DIR,
    DELTAS_SINCE,
    build_python_config,
    build_streaming_config,
    build_vllm_config,
)
from llmpack.bundle.triton_runtime.sampling import ACCEPTED
from llmpack.bundle.vllm_engine import VllmEngine
from llmpack.validate.facts import ArtifactFacts

RBLN_INDEX = "https://pypi.rbln.ai/simple/"

_INPUTS = {
    "text_input": "The text to continue. The only one that must be given.",
    "stream": "One response per step instead of one in all; false unless given.",
    "sampling_parameters": "JSON text with the names of vLLM's SamplingParams.",
    "exclude_input_in_output": "Leave the prompt out of the answer; only false is refused while streaming.",
    "return_finish_reason": 'Adds `finish_reason`: "None" while running, then "stop" or "length".',
    "return_cumulative_logprob": "Adds `cumulative_logprob` of all tokens so far.",
    "return_logprobs": "Adds `logprobs`, JSON, of the new tokens; asks for `logprobs` in the sampling parameters too.",
    "return_num_input_tokens": "Adds `num_input_tokens`.",
    "return_num_output_tokens": "Adds `num_output_tokens`, those of this response.",
    "image": "Images, base64, for models that see.",
    "embedding_request": "JSON text of an embedding request, for models that embed.",
    "prompt": "The text to continue.",
}


def build_triton_files(plan: EmitPlan, manifest: Manifest) -> list[BundleFile]:
    """All files but the artifact, by path, of a target that llmpack's own runtime serves."""
    is_streaming = plan.target == "triton"
    config = build_streaming_config(plan) if is_streaming else build_python_config(plan, manifest)
    values = _common_values(plan, config) | {
        "NUM_INSTANCES": str(plan.num_instances),
        "BATCH_SIZE": str(manifest.batch_size),
        "MAX_SEQ_LEN": str(manifest.max_seq_len),
        "MAX_TOKENS": dict(config.parameters)["max_tokens"],
        "SAMPLING_NAMES": ", ".join(sorted(ACCEPTED)),
        "ARTIFACT_FACTS": describe_artifact(manifest),
        "IMAGE_TAG": f"{plan.triton_release}-py3",
        "DOCKER_OPTIONS": "",
        "DOCKER_VOLUMES": _docker_volumes(plan, '"$here":/models:ro'),
        "DOCKER_COMMAND": "/models/serve.sh",
        "LLMPACK": serving_requirement(manifest.engine),
        "TORCH_INDEX": torch_index_line(manifest.engine),
    }
    pieces = {"PREPARE": "prepare_llmpack", "DOCKER_INSTALL": "install_llmpack"}
    values |= {name: render_template(piece, values).rstrip("\n") for name, piece in pieces.items()}
    # llmpack names what it refuses; the vLLM backend does not, so its smoke test leaves that out.
    values |= {"REFUSAL": render_template("smoke_refusal", values), "ALSO_ASKED": ", and for something impossible"}
    kind = "streaming" if is_streaming else "batch"
    model_py = BundleFile(f"{plan.version_dir}/model.py", render_template(f"model_{kind}.py", values))
    readme = BundleFile("README.md", render_template(f"README_{kind}.md", values))
    return _sorted([_config_file(plan, config), model_py, readme, *launch_files(values), *client_files(kind, values)])


def build_vllm_files(plan: EmitPlan, facts: ArtifactFacts, engine: VllmEngine, root: Path) -> list[BundleFile]:
    """All files but the artifact, by path, of a bundle at `root` for an engine that the container brings."""
    config = build_vllm_config(plan)
    inside = root / plan.version_dir / ARTIFACT_DIR
    is_moved = bool(engine.artifact_arguments) and plan.is_artifact_inside
    arguments = engine.arguments | (dict.fromkeys(engine.artifact_arguments, str(inside)) if is_moved else {})
    is_rbln = engine.name == "vllm-rbln"
    packages = f"vllm-rbln=={engine.release}" if engine.release else "rebel-compiler optimum-rbln vllm-rbln"
    values = _common_values(plan, config) | {
        "ENGINE": f"{engine.name} {engine.release or 'up to 0.7.4'}",
        "ARTIFACT_FACTS": _describe_facts(facts),
        "VERSION_DIR": plan.version_dir,
        "ARTIFACT_DIR": ARTIFACT_DIR,
        "ARTIFACT_ARGUMENTS": json.dumps(engine.artifact_arguments),
        "IMAGE_TAG": f"{plan.triton_release}-vllm-python-py3",
        "RBLN_INDEX": RBLN_INDEX,
        "RBLN_PACKAGES": packages,
        "BACKEND_AI": f" and run `pip install --extra-index-url {RBLN_INDEX} {packages}`" if is_rbln else "",
        # The vendor's guide runs the container privileged: the devices are not visible otherwise.
        "DOCKER_OPTIONS": "--privileged" if is_rbln else "--gpus all",
        "DOCKER_VOLUMES": _docker_volumes(plan, '"$here":"$here"'),  # model.json's path is good on both sides
        "DOCKER_COMMAND": '"$here/serve.sh"',
        "REFUSAL": "",
        "ALSO_ASKED": "",
        "DOCKER_INSTALL": "",
        "PREPARE": "",
    }
    if is_rbln:
        values["DOCKER_INSTALL"] = render_template("install_rbln", values).rstrip("\n")
    if is_moved:
        values["PREPARE"] = render_template("prepare_moved", values)
    model_json = BundleFile(f"{plan.version_dir}/model.json", json.dumps(arguments, indent=2) + "\n")
    readme = BundleFile("README.md", render_template("README_vllm.md", values))
    return _sorted(
        [_config_file(plan, config), model_json, readme, *launch_files(values), *client_files("streaming", values)]
    )


def _sorted(files: list[BundleFile]) -> list[BundleFile]:
    return sorted(files, key=lambda file: file.path)


def _config_file(plan: EmitPlan, config: ModelConfig) -> BundleFile:
    return BundleFile(f"{plan.model_name}/config.pbtxt", render_config(config))


def launch_files(values: Mapping[str, str]) -> list[BundleFile]:
    """Starts on this machine and in a container."""
    return [
        BundleFile("serve.sh", render_template("serve.sh", values), is_executable=True),
        BundleFile("serve-docker.sh", render_template("serve_docker.sh", values), is_executable=True),
        BundleFile("Dockerfile", render_template("Dockerfile", values).rstrip("\n") + "\n"),
    ]


def client_files(kind: str, values: Mapping[str, str]) -> list[BundleFile]:
    """Asks a running server: clients for both protocols, and a smoke test."""
    return [
        BundleFile("client_grpc.py", _python_command(f"client_grpc_{kind}.py", values), is_executable=True),
        BundleFile("client_http.py", _python_command(f"client_http_{kind}.py", values), is_executable=True),
        BundleFile("smoke.sh", render_template(f"smoke_{kind}.sh", values), is_executable=True),
    ]


def _python_command(name: str, values: Mapping[str, str]) -> str:
    return "#!/usr/bin/env python3\n" + render_template(name, values)


def _common_values(plan: EmitPlan, config: ModelConfig) -> dict[str, str]:
    return {
        "LLMPACK_VERSION": __version__,
        "MODEL_NAME": plan.model_name,
        "TRITON_RELEASE": plan.triton_release,
        "INPUT_TABLE": "\n".join(f"| `{t.name}` | {_INPUTS[t.name]} |" for t in config.inputs),
        "LAYOUT": _describe_layout(plan),
        "STREAM_SENTENCE": _describe_stream(plan),
        "IS_CUMULATIVE": str(plan.triton_release < DELTAS_SINCE),
    }


def describe_artifact(manifest: Manifest) -> str:
    """What was compiled to what, in a sentence."""
    source = manifest.source.model + (f" at {manifest.source.revision}" if manifest.source.revision else "")
    return (
        f"{source}, compiled to {manifest.batch_size} slots of {manifest.max_seq_len} tokens ({manifest.architecture}, "
        f"{manifest.dtype}); build {manifest.build_id[:12]}."
    )


def _describe_facts(facts: ArtifactFacts) -> str:
    source = facts.model_id or facts.path
    return f"{source}, compiled to {facts.batch_size} sequences of {facts.max_seq_len} tokens ({facts.kind})."


def _describe_layout(plan: EmitPlan) -> str:
    where = (
        f"The artifact is inside, at `{plan.version_dir}/{ARTIFACT_DIR}`: this directory may be moved anywhere."
        if plan.is_artifact_inside
        else f"The artifact is not inside; config.pbtxt names it: `{plan.artifact}`."
    )
    return f"This directory is a Triton model repository. {where}"


def _describe_stream(plan: EmitPlan) -> str:
    if plan.triton_release >= DELTAS_SINCE:
        return "With `stream` every response has the new text only."
    return f"With `stream` every response has the prompt and all text so far, as release {plan.triton_release} did."


def _docker_volumes(plan: EmitPlan, bundle: str) -> str:
    artifact = "" if plan.is_artifact_inside else f' --volume "{plan.artifact}":"{plan.artifact}":ro'
    return f"--volume {bundle}{artifact}"
