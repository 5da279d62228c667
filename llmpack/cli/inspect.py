"""`llmpack inspect`: the facts of an artifact, from its manifest alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmpack.cli.arguments import ArtifactArgument, JsonOption
from llmpack.cli.console import format_bytes, print_facts, print_json

if TYPE_CHECKING:
    from llmpack.artifact.manifest import KvCache, Manifest, SpecialTokens


def inspect(artifact: ArtifactArgument, as_json: JsonOption = False) -> None:
    """Print the facts of an artifact. Reads the manifest only; `verify` checks the files."""
    from llmpack.artifact.reader import read_manifest

    manifest = read_manifest(artifact)
    if as_json:
        print_json(manifest)
        return
    print_facts(str(artifact), facts(manifest))


def facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Names and values of a manifest as a person wants to read them."""
    source, measured = manifest.source, manifest.measured
    yield "model", f"{source.model}" + (f" @ {source.revision}" if source.revision else f" ({source.kind})")
    yield "architecture", f"{manifest.architecture}, {manifest.num_parameters:,} parameters"
    yield "weights", f"{manifest.dtype}, quantization {manifest.quantization}, {format_bytes(measured.weights_bytes)}"
    yield "max_seq_len", str(manifest.max_seq_len)
    yield "batch_size", str(manifest.batch_size)
    yield "tensor_parallel_size", str(manifest.tensor_parallel_size)
    yield "prefill_buckets", _join(manifest.prefill_buckets)
    yield "decode_buckets", _join(manifest.decode_buckets)
    yield "kv cache", _describe_cache(manifest.kv_cache)
    yield "special tokens", _describe_tokens(manifest.special_tokens)
    yield "programs", ", ".join(program.name for program in manifest.programs)
    yield "engine", _describe_engine(manifest)
    yield "compiled with", f"llmpack {manifest.toolchain.llmpack}, torch {manifest.toolchain.torch}"
    yield "compile took", f"{measured.compile_time_s:.1f} s, peak memory {format_bytes(measured.peak_memory_bytes)}"
    yield "size", f"{format_bytes(measured.artifact_bytes)} in {len(manifest.files)} files"
    yield "build_id", manifest.build_id


def _join(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _describe_cache(cache: KvCache) -> str:
    num_sliding = sum(layer.kind == "sliding" for layer in cache.layers)
    return f"{cache.dtype}, {len(cache.layers)} layers ({num_sliding} sliding), {format_bytes(cache.total_bytes)}"


def _describe_tokens(tokens: SpecialTokens) -> str:
    return f"bos {tokens.bos_token_id}, eos {_join(tokens.eos_token_ids)}, pad {tokens.pad_token_id}"


def _describe_engine(manifest: Manifest) -> str:
    from llmpack.artifact.requirements import find_runtime_problems

    runtime = manifest.runtime
    problems = find_runtime_problems(manifest)
    here = "loads here" if not problems else "does not load here: " + "; ".join(problems)
    engine = "" if manifest.engine == runtime.name else f"{manifest.engine} on "
    return f"{engine}{runtime.name} >= {runtime.minimum}, < {runtime.below} ({here})"
