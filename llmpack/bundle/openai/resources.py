"""What a server needs of its host, from the numbers of the artifact."""

from __future__ import annotations

from dataclasses import dataclass

from llmpack.artifact.manifest import Manifest
from llmpack.bundle.openai.command import SHUTDOWN_TIMEOUT_S
from llmpack.runtime.onnx_runner import PREPACKED
from llmpack.validate.facts import ArtifactFacts

MIB = 1 << 20
GIB = 1 << 30

STARTUP_S = 600
"""How long loading may take before a server counts as broken."""
PRE_STOP_S = 5
"""A pod that ends still gets requests until every node has heard of it."""
GRACE_PERIOD_S = PRE_STOP_S + SHUTDOWN_TIMEOUT_S + 10
"""Until what still runs is killed: leaving the balancer, draining, and some seconds to write last bytes and exit."""

_PROCESS_BYTES = 256 * MIB
"""Python, ONNX Runtime, tokenizer and server: 107 MiB measured with a model of 1 MiB; the rest is for activations.

SmolLM2-135M, float32, 4 slots of 512 tokens: 1806 MiB measured while all slots run, 1885 MiB by `need_of_llmpack`.
"""
_ENGINE_BYTES = 4 * GIB
"""torch, a device's libraries and vLLM's processes: an allowance."""
_SHARED_BYTES = GIB


@dataclass(frozen=True, slots=True)
class Resources:
    """What a server needs.

    Attributes:
        parts: Bytes of memory by what takes them.
        shared_memory_bytes: Of /dev/shm, part of the memory; 0 when it has no use for it.
        storage_bytes: Of the directory that it loads, or of the cache that the hub's files go to.
        accelerator: Kubernetes resource of its devices; None for the CPU.
        num_accelerators: Devices.
        is_exact: Whether the memory is a bound that may be enforced, rather than an allowance.
    """

    parts: tuple[tuple[str, int], ...]
    shared_memory_bytes: int
    storage_bytes: int
    accelerator: str | None = None
    num_accelerators: int = 0
    is_exact: bool = True

    @property
    def memory_mib(self) -> int:
        """All parts, in MiB, rounded up to 64."""
        return -(-sum(size for _, size in self.parts) // (64 * MIB)) * 64

    @property
    def storage_gib(self) -> int:
        """A volume's size, in GiB, with a tenth for the file system."""
        return -(-self.storage_bytes * 11 // (10 * GIB)) or 1


def need_of_llmpack(manifest: Manifest, weights_bytes: int) -> Resources:
    """An upper bound: the shared map of the weights, a packed copy for each program of `PREPACKED`, the full cache."""
    packs = manifest.engine == "onnxruntime"  # Inductor's weights lie packed in the file.
    num_copies = sum(program.kind in PREPACKED for program in manifest.programs) if packs else 0
    return Resources(
        parts=(
            ("weights, mapped", weights_bytes),
            (f"weights, packed for {num_copies} programs", num_copies * weights_bytes),
            ("key-value cache", manifest.kv_cache.total_bytes),
            ("process", _PROCESS_BYTES),
        ),
        shared_memory_bytes=0,
        storage_bytes=sum(record.size_bytes for record in manifest.files),
    )


def need_of_vllm(facts: ArtifactFacts, artifact_bytes: int, *, takes_artifact: bool) -> Resources:
    """Host memory to load the weights once; the cache is on the device.

    Source: NVIDIA's device plugin offers `nvidia.com/gpu`; Rebellions' from 0.4.0 on `rebellions.ai/npu`.
    """
    return Resources(
        parts=(
            ("weights, while they are loaded", artifact_bytes),
            ("shared memory", _SHARED_BYTES),
            ("engine", _ENGINE_BYTES),
        ),
        shared_memory_bytes=_SHARED_BYTES,
        storage_bytes=artifact_bytes,
        accelerator="rebellions.ai/npu" if takes_artifact else "nvidia.com/gpu",
        num_accelerators=facts.tensor_parallel_size or 1,
        is_exact=False,
    )
