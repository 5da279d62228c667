"""Facts from llmpack's own manifest, its files and this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llmpack.artifact.integrity import Verify, find_file_problems
from llmpack.artifact.manifest import MANIFEST_NAME, SCHEMA_VERSION, Manifest
from llmpack.artifact.reader import read_manifest
from llmpack.artifact.requirements import find_cpu_problems, find_version_problems
from llmpack.errors import ManifestError
from llmpack.validate.artifacts.checkpoint_files import find_token_problems
from llmpack.validate.artifacts.json_facts import int_at, read_object, read_object_if_there
from llmpack.validate.facts import ArtifactFacts, ArtifactProblem


def read_llmpack_facts(root: Path, verify: Verify = "full") -> ArtifactFacts:
    """The facts of an llmpack artifact; a manifest that is newer than this llmpack is a problem, not an error.

    Raises:
        ManifestError: The manifest is unreadable or contradicts itself.
    """
    try:
        manifest = read_manifest(root)
    except ManifestError as error:
        newer = _find_newer_schema(root)
        if newer is None:
            raise
        problem = ArtifactProblem(
            "runtime-range", error.what, MANIFEST_NAME, f"schema {newer}", f"schema {SCHEMA_VERSION} or older"
        )
        return ArtifactFacts(
            kind="llmpack",
            path=str(root),
            fact_file=MANIFEST_NAME,
            is_fixed_shape=False,
            problems=(problem,),
            checked_topics=frozenset({"runtime-range"}),
        )
    return facts_of(manifest, root, tuple(_find_problems(root, manifest, verify)))


def _find_newer_schema(root: Path) -> int | None:
    version = int_at(read_object(root / MANIFEST_NAME), "schema_version")
    return version if version is not None and version > SCHEMA_VERSION else None


def facts_of(manifest: Manifest, root: Path | None = None, problems: tuple[ArtifactProblem, ...] = ()) -> ArtifactFacts:
    """The facts that a manifest alone gives; `problems` of all topics are those of the caller."""
    source = manifest.source
    return ArtifactFacts(
        kind="llmpack",
        path=str(root) if root is not None else "",
        fact_file=MANIFEST_NAME,
        is_fixed_shape=False,
        batch_size=manifest.batch_size,
        max_seq_len=manifest.max_seq_len,
        kv_block_size=manifest.max_seq_len,
        prefill_buckets=tuple(manifest.prefill_buckets),
        tensor_parallel_size=manifest.tensor_parallel_size,
        num_attention_heads=_count_heads(root),
        num_key_value_heads=min((layer.num_key_value_heads for layer in manifest.kv_cache.layers), default=None),
        devices=("cpu",),
        dtype=manifest.dtype,
        quantization=manifest.quantization,
        kv_cache_dtype=manifest.kv_cache.dtype,
        model_id=source.model,
        is_hub_model=source.kind == "hub",
        revision=source.revision,
        vocab_size=manifest.vocab_size,
        eos_token_ids=tuple(manifest.special_tokens.eos_token_ids),
        features=frozenset(),
        problems=problems,
        checked_topics=frozenset({"runtime-range", "files", "tokenizer", "machine"} if root is not None else ()),
    )


def _count_heads(root: Path | None) -> int | None:
    return None if root is None else int_at(read_object_if_there(root / "config.json"), "num_attention_heads")


def _find_problems(root: Path, manifest: Manifest, verify: Verify) -> Iterator[ArtifactProblem]:
    for text in find_version_problems(manifest):
        yield ArtifactProblem("runtime-range", text)
    for text in find_cpu_problems(manifest):
        yield ArtifactProblem("machine", text)
    for text in find_file_problems(root, manifest, verify):
        yield ArtifactProblem("files", text, text.partition(": ")[0])
    yield from _find_eos_problems(manifest)
    yield from find_token_problems(root, manifest.vocab_size)


def _find_eos_problems(manifest: Manifest) -> Iterator[ArtifactProblem]:
    tokens = manifest.special_tokens
    if not tokens.eos_token_ids:
        yield ArtifactProblem("tokenizer", "no end-of-text token: nothing stops but the length", MANIFEST_NAME)
