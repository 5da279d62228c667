"""Puts together the manifest of a compile."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

from llmpack import __version__
from llmpack.architectures.spec import LayerSpec
from llmpack.artifact.hashing import hash_files
from llmpack.artifact.manifest import (
    LOGITS_PATH,
    SCHEMA_VERSION,
    EngineName,
    FileRecord,
    KvCache,
    LayerCache,
    Manifest,
    Measured,
    Program,
    RuntimeRange,
    Source,
    SpecialTokens,
    TensorSpec,
    Toolchain,
)
from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.tokens import find_chat_template, find_special_tokens
from llmpack.compiler.weights import WeightPlan
from llmpack.graph.signature import Port, ProgramSignature
from llmpack.plan.engine import required_cpu_features
from llmpack.plan.plan import CompilePlan, ProgramPlan

# The oldest release that the programs were run with; the next major one may change operators.
_ONNXRUNTIME = RuntimeRange(name="onnxruntime", minimum="1.32.0", below="2.0.0")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything a manifest is made of, apart from measurements."""

    checkpoint: Checkpoint
    plan: CompilePlan
    weights: WeightPlan
    programs: tuple[Program, ...]


def describe_program(program: ProgramPlan, signature: ProgramSignature, *, suffix: str) -> Program:
    """Returns the manifest entry of a program, whose file has the suffix."""
    return Program(
        name=program.name,
        kind=program.kind,
        bucket=program.bucket,
        path=LOGITS_PATH if program.kind == "logits" else f"programs/{program.name}.{suffix}",
        inputs=[_describe_port(port) for port in signature.inputs],
        outputs=[_describe_port(port) for port in signature.outputs],
    )


def _describe_port(port: Port) -> TensorSpec:
    return TensorSpec(name=port.name, dtype=port.dtype, shape=list(port.shape))


def draft_manifest(compiled: Compiled, measured: Measured) -> Manifest:
    """Returns the manifest without what only the written files can tell (their hashes and the build id).

    Raises:
        CorruptCheckpoint: A special token lies outside the vocabulary.
    """
    plan, checkpoint = compiled.plan, compiled.checkpoint
    tokens = find_special_tokens(checkpoint)
    template = find_chat_template(checkpoint)
    return Manifest(
        schema_version=SCHEMA_VERSION,
        build_id="",
        engine=plan.engine,
        architecture=plan.spec.architecture,
        dtype=plan.dtype,
        quantization="none",
        max_seq_len=plan.max_seq_len,
        batch_size=plan.batch_size,
        tensor_parallel_size=1,
        prefill_buckets=list(plan.prefill_buckets),
        decode_buckets=list(plan.decode_buckets),
        vocab_size=plan.spec.vocab_size,
        hidden_size=plan.spec.hidden_size,
        num_hidden_layers=len(plan.spec.layers),
        num_parameters=compiled.weights.num_parameters,
        rope_table=plan.rope_table,
        kv_cache=KvCache(
            dtype=plan.dtype,
            total_bytes=plan.kv_cache_bytes,
            layers=[_layer_cache(layer, plan.max_seq_len) for layer in plan.spec.layers],
        ),
        special_tokens=SpecialTokens(
            bos_token_id=tokens.bos_token_id,
            eos_token_ids=sorted(tokens.eos_token_ids),
            pad_token_id=tokens.pad_token_id,
        ),
        chat_template_sha256=None if template is None else hashlib.sha256(template.encode()).hexdigest(),
        programs=list(compiled.programs),
        required_cpu_features=required_cpu_features(plan.engine),
        runtime=_find_runtime(plan.engine),
        toolchain=_describe_toolchain(),
        source=_describe_source(checkpoint),
        files=[],
        measured=measured,
    )


def _find_runtime(engine: EngineName) -> RuntimeRange:
    """Libraries call torch's C interface as the compiling version has it, which its minor releases may change."""
    if engine == "onnxruntime":
        return _ONNXRUNTIME
    torch = Version(version("torch"))
    return RuntimeRange(name="torch", minimum=torch.base_version, below=f"{torch.major}.{torch.minor + 1}")


def _layer_cache(layer: LayerSpec, max_seq_len: int) -> LayerCache:
    attention = layer.attention
    slides = attention.window is not None and attention.window < max_seq_len
    return LayerCache(
        kind="sliding" if slides else "full",
        window=attention.window if slides else None,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
    )


def _describe_source(checkpoint: Checkpoint) -> Source:
    return Source(
        kind=checkpoint.kind,
        model=checkpoint.model,
        revision=checkpoint.revision,
        files=_hash_sources(checkpoint.source_files),
    )


def _hash_sources(files: Sequence[tuple[str, Path]]) -> list[FileRecord]:
    ordered = sorted(files)
    digests = hash_files([path for _, path in ordered])
    return [
        FileRecord(path=name, sha256=digest, size_bytes=path.stat().st_size)
        for (name, path), digest in zip(ordered, digests, strict=True)
    ]


def _describe_toolchain() -> Toolchain:
    packages = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
    versions = {name: version(name) for name in packages}
    return Toolchain(llmpack=__version__, python=platform.python_version(), **versions)
