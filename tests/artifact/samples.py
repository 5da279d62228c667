"""A small sound artifact whose programs are placeholders: enough for everything that only reads facts and files."""

from __future__ import annotations

from pathlib import Path

from llmpack.artifact.consistency import kv_cache_bytes
from llmpack.artifact.manifest import (
    SCHEMA_VERSION,
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
from llmpack.artifact.writer import ArtifactWriter
from llmpack.proof.report import CaseResult, ProofReport, Tolerance, encode_report

LAYERS = [
    LayerCache(kind="full", window=None, num_key_value_heads=2, head_dim=16),
    LayerCache(kind="sliding", window=32, num_key_value_heads=2, head_dim=16),
]
CONTENT = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "programs/prefill-32.onnx": b"prefill program",
    "programs/decode-1.onnx": b"decode program for one",
    "programs/decode-4.onnx": b"decode program for four",
    "weights/model.safetensors": bytes(range(256)) * 40,
    "proof.json": encode_report(
        ProofReport(
            reference="LlamaForCausalLM (transformers 5.24.0)",
            tolerance=Tolerance(max_error=1e-3, max_kl=1e-4),
            cases=[
                CaseResult(
                    name="prefill and decode",
                    programs=["prefill-32", "decode-4"],
                    num_positions=40,
                    max_error=2e-6,
                    max_kl=3e-9,
                    worst_position=7,
                    greedy_agreement=1.0,
                    passed=True,
                )
            ],
        )
    ),
}


def make_program(kind: str, bucket: int) -> Program:
    shape = [1, bucket] if kind == "prefill" else [bucket, 1]
    return Program(
        name=f"{kind}-{bucket}",
        kind=kind,
        bucket=bucket,
        path=f"programs/{kind}-{bucket}.onnx",
        inputs=[TensorSpec(name="input_ids", dtype="int64", shape=shape)],
        outputs=[TensorSpec(name="logits", dtype="float32", shape=[*shape, 320])],
    )


def make_draft() -> Manifest:
    """A draft as the compiler hands it to `ArtifactWriter.commit`."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        build_id="",
        engine="onnxruntime",
        architecture="llama",
        dtype="float32",
        quantization="none",
        max_seq_len=64,
        batch_size=4,
        tensor_parallel_size=1,
        prefill_buckets=[32],
        decode_buckets=[1, 4],
        vocab_size=320,
        hidden_size=48,
        num_hidden_layers=2,
        num_parameters=12345,
        rope_table="default",
        kv_cache=KvCache(
            dtype="float32", total_bytes=kv_cache_bytes(LAYERS, batch_size=4, max_seq_len=64), layers=LAYERS
        ),
        special_tokens=SpecialTokens(bos_token_id=1, eos_token_ids=[2, 7], pad_token_id=None),
        chat_template_sha256=None,
        programs=[make_program("prefill", 32), make_program("decode", 1), make_program("decode", 4)],
        required_cpu_features=[],
        runtime=RuntimeRange(name="onnxruntime", minimum="1.23.0", below="2"),
        toolchain=Toolchain(
            llmpack="0.1.0",
            python="3.11.7",
            torch="2.13.0",
            transformers="5.24.0",
            onnx="1.23.2",
            onnxscript="0.7.2",
            onnxruntime="1.32.0",
        ),
        source=Source(
            kind="directory",
            model="tiny-llama",
            revision=None,
            files=[FileRecord(path="config.json", sha256="a" * 64, size_bytes=23)],
        ),
        files=[],
        measured=Measured(compile_time_s=1.5, peak_memory_bytes=1000, weights_bytes=10240, artifact_bytes=0),
    )


def fill(root: Path) -> None:
    for name, content in CONTENT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_sample(target: Path) -> Manifest:
    with ArtifactWriter(target) as writer:
        fill(writer.path)
        return writer.commit(make_draft())
