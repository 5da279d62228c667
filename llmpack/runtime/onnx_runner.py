"""Runs compiled ONNX programs over a slot cache with ONNX Runtime's CPU provider.

One copy of the weights: the file is mapped once and every session reads its initializers from that map. Sessions of the
kinds in `PREPACKED` also hold ONNX Runtime's packed copy of the projections, which decode needs to be fast.

Caches are written in place: a program's `past` input and `present` output are bound to the same memory. A prefill binds
the one slot, a decode the window of neighbouring slots, by pointer.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from llmpack.artifact.manifest import Manifest, Program, ProgramKind
from llmpack.artifact.weights_file import WEIGHTS_PATH, map_weights
from llmpack.errors import EngineError
from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, PrefixCopy, RunnerShape

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

PREPACKED: frozenset[ProgramKind] = frozenset({"decode"})
"""Kinds of program whose sessions hold a packed copy of the projections beside the shared map.

ONNX Runtime's Python API cannot share packed weights between sessions, so each of these costs the weights once more.
Packing makes decode a third faster and prefill a tenth (SmolLM2-135M, float32, AVX2), hence decode alone.
"""


class SlotCache:
    """Keys and values of every layer, each [B, K, S, E] float32, zero at the start (so that nothing is NaN).

    The memory is mapped, not allocated: the system provides a page when a token is first written to it, so what the
    cache really takes follows the longest sequences so far, not the capacity.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.arrays: dict[str, Floats] = {}
        for index, layer in enumerate(manifest.kv_cache.layers):
            shape = (manifest.batch_size, layer.num_key_value_heads, manifest.max_seq_len, layer.head_dim)
            for part in ("key", "value"):
                self.arrays[f"{index}.{part}"] = _map_zeros(shape)

    @property
    def total_bytes(self) -> int:
        """Bytes of all layers."""
        return sum(array.nbytes for array in self.arrays.values())

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot to another in every layer."""
        for array in self.arrays.values():
            array[copy.target, :, : copy.length] = array[copy.source, :, : copy.length]


def _map_zeros(shape: tuple[int, ...]) -> Floats:
    pages = mmap.mmap(-1, math.prod(shape) * np.dtype(np.float32).itemsize)
    return np.frombuffer(pages, np.float32).reshape(shape)


class OnnxProgram:
    """A session and its bindings, one binding per window of slots.

    Args:
        manifest_entry: Names and shapes.
        session: The loaded program.
        cache: What `past` and `present` are bound to.
    """

    def __init__(self, manifest_entry: Program, session: ort.InferenceSession, cache: SlotCache) -> None:
        self._session = session
        self._cache = cache
        self._bindings: dict[int, ort.IOBinding] = {}
        self.inputs = {t.name: np.zeros(t.shape, t.dtype) for t in manifest_entry.inputs if "." not in t.name}
        self.outputs = {t.name: np.zeros(t.shape, t.dtype) for t in manifest_entry.outputs if "." not in t.name}
        self._rows = 1 if manifest_entry.kind == "prefill" else manifest_entry.bucket
        self._cache_names = [t.name for t in manifest_entry.inputs if "." in t.name]

    def run(self, first_slot: int) -> None:
        """Runs the program on `inputs` and the slots from first_slot on; results are in `outputs`."""
        binding = self._bindings.get(first_slot)
        if binding is None:
            binding = self._bindings[first_slot] = self._bind(first_slot)
        self._session.run_with_iobinding(binding)

    def _bind(self, first_slot: int) -> ort.IOBinding:
        binding = self._session.io_binding()
        for name, array in self.inputs.items():
            _bind_input(binding, name, array)
        for name, array in self.outputs.items():
            _bind_output(binding, name, array)
        for name in self._cache_names:
            key = name.removeprefix("past_key_values.")
            window = self._cache.arrays[key][first_slot : first_slot + self._rows]
            _bind_input(binding, name, window)
            _bind_output(binding, f"present.{key}", window)
        return binding


def _bind_input(binding: ort.IOBinding, name: str, array: Array) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _bind_output(binding: ort.IOBinding, name: str, array: Array) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


class OnnxRunner:
    """The Runner over an artifact's ONNX programs.

    Args:
        directory: The artifact; its files are taken as checked.
        manifest: Of that artifact.
        num_threads: Of ONNX Runtime's pool; 0 for one per physical core.
        prepacked: Kinds of program that keep a packed copy of the weights.

    Raises:
        EngineError: ONNX Runtime cannot load a program.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        *,
        num_threads: int = 0,
        prepacked: frozenset[ProgramKind] = PREPACKED,
    ) -> None:
        self._directory = directory
        self._num_threads = num_threads
        self._prepacked = prepacked
        # Sessions keep pointers into these values and do not own them: they must live as long as the runner.
        self._weights = {
            name: ort.OrtValue.ortvalue_from_numpy(array)
            for name, array in map_weights(directory / WEIGHTS_PATH).items()
        }
        self._cache = SlotCache(manifest)
        self._shape = RunnerShape(
            batch_size=manifest.batch_size,
            max_seq_len=manifest.max_seq_len,
            vocab_size=manifest.vocab_size,
            prefill_buckets=tuple(manifest.prefill_buckets),
            decode_buckets=tuple(manifest.decode_buckets),
        )
        self._entries: dict[tuple[ProgramKind, int], Program] = {
            (program.kind, program.bucket): program for program in manifest.programs if program.kind != "logits"
        }
        self._programs: dict[tuple[ProgramKind, int], OnnxProgram] = {}
        for kind, bucket in self._entries:
            if kind != "head":  # Loaded when a request first asks for prompt logprobs.
                self._program(kind, bucket)

    @property
    def shape(self) -> RunnerShape:
        """The compiled shapes."""
        return self._shape

    @property
    def cache(self) -> SlotCache:
        """The slot cache, for tests and memory reports."""
        return self._cache

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot to another."""
        self._cache.copy_prefix(copy)

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        """Writes the chunk into its slot. Costs one run of the bucket, and of the head program for all_logits."""
        program = self._program("prefill", chunk.bucket)
        count, inputs = len(chunk.token_ids), program.inputs
        inputs["input_ids"][0, :count] = chunk.token_ids
        inputs["input_ids"][0, count:] = 0
        inputs["position_ids"][0] = np.arange(chunk.start, chunk.start + chunk.bucket)
        inputs["seqlens_k"][0] = chunk.start + chunk.bucket - 1
        inputs["total_sequence_length"][0] = chunk.start + chunk.bucket
        inputs["logits_index"][0] = count - 1
        program.run(chunk.slot)
        every = self._all_logits(program.outputs["hidden_states"][:count]) if chunk.all_logits else None
        return PrefillResult(program.outputs["logits"][0].copy(), every)

    def decode(self, batch: DecodeBatch) -> Logits:
        """Writes one token per row and returns [bucket, V] logits, valid until the next call."""
        program = self._program("decode", batch.bucket)
        inputs = program.inputs
        inputs["input_ids"][:, 0] = batch.token_ids
        inputs["position_ids"][:, 0] = batch.lengths
        inputs["seqlens_k"][:] = batch.lengths
        inputs["total_sequence_length"][0] = max(batch.lengths) + 1
        program.run(batch.first_slot)
        return program.outputs["logits"]

    def _all_logits(self, hidden_states: Floats) -> Logits:
        (bucket,) = (bucket for kind, bucket in self._entries if kind == "head")
        program = self._program("head", bucket)
        logits = np.empty((len(hidden_states), self._shape.vocab_size), np.float32)
        for start in range(0, len(hidden_states), bucket):
            part = hidden_states[start : start + bucket]
            program.inputs["hidden_states"][: len(part)] = part
            program.run(0)
            logits[start : start + len(part)] = program.outputs["logits"][: len(part)]
        return logits

    def _program(self, kind: ProgramKind, bucket: int) -> OnnxProgram:
        key = (kind, bucket)
        if key not in self._programs:
            entry = self._entries[key]
            self._programs[key] = OnnxProgram(entry, self._load(entry), self._cache)
        return self._programs[key]

    def _load(self, entry: Program) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._num_threads
        options.log_severity_level = 3
        folder = str(self._directory.resolve())
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        if entry.kind not in self._prepacked:
            options.add_session_config_entry("session.disable_prepacking", "1")
        for name, value in self._weights.items():
            options.add_initializer(name, value)
        model = (self._directory / entry.path).read_bytes()
        try:
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime raises its own types, all straight under Exception.
            raise EngineError(
                f"ONNX Runtime cannot load program {entry.name}", where=entry.path, given=str(error)
            ) from error
