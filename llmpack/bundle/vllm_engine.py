"""Target `triton-vllm`: the arguments of an engine that the container brings, from the facts of an artifact.

optimum-rbln artifact -> vllm-rbln, which runs the artifact: every number must be the compiled one
llmpack artifact      -> stock vLLM, which runs the source model: no more sequences or tokens than were compiled
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from llmpack.errors import ArtifactError, UsageError
from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.vocabulary.engine_vocabulary import find_vocabulary

# Source: triton-inference-server/server, docs/introduction/compatibility.md; releases in between are not listed.
_CONTAINER_VLLM = {"24.01": "0.2.7", "24.10": "0.5.5", "25.03": "0.7.3", "25.09": "0.10.1.1", "26.01": "0.13.0"}
RBLN_TRITON_RELEASE = "24.01"  # Source: the vendor's guide to vllm-rbln up to 0.7.4
_NEEDED = ("batch_size", "max_seq_len")

JsonScalar = str | int


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """An engine and what it is started with.

    Attributes:
        name: Which one.
        release: Its version; None for vllm-rbln up to 0.7.4.
        arguments: Of `AsyncEngineArgs`, in the order in which they are written.
        artifact_arguments: Those out of `arguments` whose value is the artifact's directory.
    """

    name: str
    release: str | None
    arguments: dict[str, JsonScalar]
    artifact_arguments: tuple[str, ...]


def choose_engine(facts: ArtifactFacts, release: str | None, triton_release: str, model: str | None) -> VllmEngine:
    """The engine for an artifact.

    Args:
        facts: Of the artifact.
        release: The engine's version; None for the container's.
        triton_release: The container's release.
        model: What stock vLLM loads; None for the artifact's source.

    Raises:
        ArtifactError: No engine runs such an artifact, or a number is not known.
        UsageError: The release is no version, or there is no model that vLLM could load.
    """
    if release is not None:
        _check_version(release)
    missing = [name for name in _NEEDED if getattr(facts, name) is None]
    if missing:
        raise ArtifactError(f"{' and '.join(missing)} cannot be read", where=facts.fact_file)
    if facts.kind == "optimum-rbln":
        return _build_rbln(facts, release, model)
    if facts.kind == "llmpack":
        return _build_stock(facts, release or container_vllm(triton_release), model)
    raise ArtifactError(
        "no engine of Triton's vLLM backend runs it",
        where=facts.path,
        given=facts.kind,
        allowed="llmpack, optimum-rbln",
    )


def container_vllm(triton_release: str) -> str:
    """The version of vLLM in a container, or in the latest earlier one that is known."""
    return _CONTAINER_VLLM[max(release for release in _CONTAINER_VLLM if release <= triton_release)]


def _build_rbln(facts: ArtifactFacts, release: str | None, model: str | None) -> VllmEngine:
    """A plugin of vLLM (from 0.8 on) takes the artifact as the model; before that it had arguments of its own."""
    wished: dict[str, JsonScalar | None] = {
        "model": model or facts.model_id,
        "device": "rbln",
        "max_num_seqs": facts.batch_size,
        "compiled_model_dir": facts.path,
        "max_num_batched_tokens": facts.max_num_batched_tokens or facts.max_seq_len,
        "max_model_len": facts.max_seq_len,
        "block_size": facts.kv_block_size,
    }
    arguments = _known_arguments("vllm-rbln", release, wished)
    if "compiled_model_dir" in arguments:
        return VllmEngine("vllm-rbln", release, arguments, ("compiled_model_dir",))
    return VllmEngine("vllm-rbln", release, {**arguments, "model": facts.path}, ("model",))


def _build_stock(facts: ArtifactFacts, release: str, model: str | None) -> VllmEngine:
    if model is None and not facts.is_hub_model:
        raise UsageError(
            "vLLM runs the source model, and this artifact was compiled from a local one",
            where="--model", allowed="a hub id or the absolute path of the checkpoint",
        )  # fmt: skip
    is_source = model is None or model == facts.model_id
    wished: dict[str, JsonScalar | None] = {
        "model": model or facts.model_id,
        "revision": facts.revision if is_source else None,
        "dtype": facts.dtype,
        "max_num_seqs": facts.batch_size,
        "max_model_len": facts.max_seq_len,
        "tensor_parallel_size": facts.tensor_parallel_size,
    }
    return VllmEngine("vllm", release, _known_arguments("vllm", release, wished), ())


def _known_arguments(engine: str, release: str | None, wished: dict[str, JsonScalar | None]) -> dict[str, JsonScalar]:
    """Those that the release takes: one key too many and the backend does not start."""
    found = find_vocabulary(engine, release)
    assert found is not None, "both engines have a vocabulary"
    vocabulary, known_release = found
    return {
        name: value
        for name, value in wished.items()
        if value is not None and vocabulary.knows(name, "arguments", known_release)
    }


def _check_version(release: str) -> None:
    try:
        Version(release)
    except InvalidVersion as error:
        raise UsageError("not a version", where="--engine-release", given=release, allowed="such as 0.13.0") from error
