"""What a user wants of an OpenAI bundle, and what was decided from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from llmpack import __version__
from llmpack.artifact.manifest import Manifest
from llmpack.artifact.reader import open_artifact
from llmpack.artifact.weights_file import WEIGHTS_PATH
from llmpack.bundle.openai.command import ServerCommand, build_llmpack_command, build_vllm_command
from llmpack.bundle.openai.resources import Resources, need_of_llmpack, need_of_vllm
from llmpack.bundle.options import LATEST_RELEASE, resolve_model_name, unknown_choice
from llmpack.bundle.requirement import serving_requirement, torch_index_line
from llmpack.bundle.vllm_engine import choose_engine
from llmpack.errors import ArtifactError, UsageError
from llmpack.validate.artifacts.detect import read_facts
from llmpack.validate.artifacts.json_facts import read_object_if_there
from llmpack.validate.facts import ArtifactFacts, ArtifactKind
from llmpack.validate.vocabulary.engine_vocabulary import read_vocabulary

OpenAIServer = Literal["llmpack", "vllm", "vllm-rbln"]
SERVERS: tuple[OpenAIServer, ...] = get_args(OpenAIServer)
ARTIFACT_DIR = "artifact"

_NEEDED_KIND: dict[OpenAIServer, ArtifactKind] = {
    "llmpack": "llmpack",
    "vllm": "llmpack",
    "vllm-rbln": "optimum-rbln",
}
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """What to emit.

    Attributes:
        server: Which server the bundle starts.
        model_name: The name that requests say; None takes that of the source.
        engine_release: Version of vLLM or vllm-rbln; None for the latest whose arguments are known.
        model: What stock vLLM loads; None takes the artifact's source.
        image: Name of the image that the Dockerfile builds; None for one after the model.
        has_absolute_paths: Name the artifact where it lies instead of taking it into the bundle.
    """

    server: OpenAIServer = "llmpack"
    model_name: str | None = None
    engine_release: str | None = None
    model: str | None = None
    image: str | None = None
    has_absolute_paths: bool = False


@dataclass(frozen=True, slots=True)
class OpenAIPlan:
    """What was decided.

    Attributes:
        model_name: The name that requests say.
        command: How the server is started.
        resources: What it needs of its host.
        image: Name of its container image.
        model_dir: Directory that must be visible to the server, absolute: the artifact, or a local checkpoint for
            stock vLLM; None when everything comes from the hub.
        is_artifact_inside: `model_dir` is the artifact and is taken into the bundle.
        has_chat_template: Whether the model takes part in conversations.
        artifact_facts: One sentence about the artifact.
        capacity: Sequences at once and tokens of each.
        torch_index: Line of the Dockerfile that tells where torch comes from; empty where nothing needs it.
    """

    model_name: str
    command: ServerCommand
    resources: Resources
    image: str
    model_dir: Path | None
    is_artifact_inside: bool
    has_chat_template: bool
    artifact_facts: str
    capacity: tuple[int, int]
    torch_index: str = ""

    @property
    def loads_from_hub(self) -> bool:
        """Whether the server fetches weights or a tokenizer by the id that it was given."""
        model = dict(self.command.arguments).get("--model")
        return model is not None and not model.startswith("/")

    @property
    def resource_name(self) -> str:
        """A name after the model that clusters and registries take."""
        return dns_label(self.model_name)


def dns_label(name: str) -> str:
    """A DNS label of at most 42 characters, short enough for the names that are made of it (RFC 1035, 2.3.1)."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return label if label[:1].isalpha() else f"m-{label}"


def _image_name(model_name: str, server: str, release: str) -> str:
    return f"{dns_label(model_name)}-{server}:{release.replace('+', '-')}"


def resolve_plan(options: OpenAIOptions, directory: Path) -> OpenAIPlan:
    """The plan for the artifact in `directory`, every file of which is hashed when it is llmpack's own.

    Raises:
        ArtifactError: The artifact cannot be used, or the server does not run such a one.
        UsageError: A value that cannot be used, or that means nothing for the server.
    """
    _check_options(options)
    if options.server == "llmpack":
        return _plan_llmpack(options, directory)
    facts = read_facts(directory)
    needed = _NEEDED_KIND[options.server]
    if facts.kind != needed:
        next_step = "Choose --for vllm-rbln." if facts.kind == "optimum-rbln" else None
        raise ArtifactError(
            f"{options.server} does not serve it",
            where=facts.path,
            given=facts.kind,
            allowed=needed,
            next_step=next_step,
        )
    return _plan_vllm(options, facts)


def _check_options(options: OpenAIOptions) -> None:
    if options.server not in SERVERS:
        raise unknown_choice("--for", options.server, SERVERS)
    if options.server == "llmpack" and options.engine_release:
        raise UsageError("llmpack emits for its own release", where="--engine-release", given=options.engine_release)
    if options.server != "vllm" and options.model:
        raise UsageError("only --for vllm loads a model other than the artifact", where="--model", given=options.model)
    if options.server == "vllm" and options.has_absolute_paths:
        raise UsageError("stock vLLM loads no artifact that could lie inside", where="--absolute-paths")
    if options.image is not None and not _IMAGE.fullmatch(options.image):
        allowed = "such as registry.example/team/name:tag"
        raise UsageError("not the name of an image", where="--image", given=options.image, allowed=allowed)


def _plan_llmpack(options: OpenAIOptions, directory: Path) -> OpenAIPlan:
    artifact = open_artifact(directory)
    manifest = artifact.manifest
    name = resolve_model_name(options.model_name, manifest.source.model)
    return OpenAIPlan(
        model_name=name,
        command=build_llmpack_command(name, serving_requirement(manifest.engine)),
        resources=need_of_llmpack(manifest, _weights_bytes(manifest)),
        image=options.image or _image_name(name, "llmpack", __version__),
        model_dir=artifact.path.resolve(),
        is_artifact_inside=not options.has_absolute_paths,
        has_chat_template=manifest.chat_template_sha256 is not None,
        artifact_facts=_describe(manifest.source.model, manifest.batch_size, manifest.max_seq_len, "llmpack"),
        capacity=(manifest.batch_size, manifest.max_seq_len),
        torch_index=torch_index_line(manifest.engine),
    )


def _plan_vllm(options: OpenAIOptions, facts: ArtifactFacts) -> OpenAIPlan:
    release = options.engine_release or read_vocabulary(options.server).releases[-1]
    engine = choose_engine(facts, release, LATEST_RELEASE, options.model)
    name = resolve_model_name(options.model_name, facts.model_id or Path(facts.path).name)
    model = str(engine.arguments["model"])
    takes_artifact = bool(engine.artifact_arguments)
    artifact = Path(facts.path).resolve()
    assert facts.batch_size and facts.max_seq_len, "choose_engine has asked for both"
    return OpenAIPlan(
        model_name=name,
        command=build_vllm_command(name, engine),
        resources=need_of_vllm(facts, _directory_bytes(artifact), takes_artifact=takes_artifact),
        image=options.image or _image_name(name, options.server, release),
        model_dir=artifact if takes_artifact else Path(model) if model.startswith("/") else None,
        is_artifact_inside=takes_artifact and not options.has_absolute_paths,
        has_chat_template=_has_chat_template(artifact),
        artifact_facts=_describe(facts.model_id or facts.path, facts.batch_size, facts.max_seq_len, facts.kind),
        capacity=(facts.batch_size, facts.max_seq_len),
    )


def _weights_bytes(manifest: Manifest) -> int:
    return next((record.size_bytes for record in manifest.files if record.path == WEIGHTS_PATH), 0)


def _directory_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _has_chat_template(artifact: Path) -> bool:
    """Hugging Face keeps the template in a file of its own or in the tokenizer's config."""
    config = read_object_if_there(artifact / "tokenizer_config.json")
    return (artifact / "chat_template.jinja").is_file() or bool(config and config.get("chat_template"))


def _describe(source: str, batch_size: int, max_seq_len: int, kind: str) -> str:
    return f"{source}, compiled by {kind} to {batch_size} sequences of {max_seq_len} tokens."
