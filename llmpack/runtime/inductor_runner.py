"""Runs programs made of native libraries over a slot cache, with torch alone and nothing of its compiler.

One copy of the weights: the file is mapped once and every library reads its constants from that map. A library that
several layers share is loaded once for each of them, with other constants; its code is in memory once.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from llmpack.artifact.library_program import LibraryCall, cache_len, live_len, read_program
from llmpack.artifact.manifest import DtypeName, Manifest, Program
from llmpack.artifact.weights_file import WEIGHTS_PATH, read_layout
from llmpack.errors import EngineError
from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, PrefillResult, PrefixCopy, RunnerShape

Ids = npt.NDArray[np.int64]
LayerCache = tuple[Tensor, Tensor]

_DTYPES: Mapping[DtypeName, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class SlotTensors:
    """Keys and values of every layer, each [B, K, S, E], zero at the start (so that nothing is NaN).

    The memory is mapped, not allocated: what the cache really takes follows the longest sequences so far.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._layers: list[LayerCache] = []
        self._windows: dict[tuple[int, int], list[LayerCache]] = {}
        dtype = _DTYPES[manifest.kv_cache.dtype]
        for layer in manifest.kv_cache.layers:
            rows = cache_len(manifest.max_seq_len)
            shape = (manifest.batch_size, layer.num_key_value_heads, rows, layer.head_dim)
            self._layers.append((_map_zeros(shape, dtype), _map_zeros(shape, dtype)))

    def window(self, first_slot: int, count: int) -> list[LayerCache]:
        """Returns views of neighbouring slots, layer by layer."""
        key = (first_slot, count)
        if key not in self._windows:
            part = slice(first_slot, first_slot + count)
            self._windows[key] = [(keys[part], values[part]) for keys, values in self._layers]
        return self._windows[key]

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot to another in every layer."""
        for layer in self._layers:
            for part in layer:
                part[copy.target, :, : copy.length] = part[copy.source, :, : copy.length]


def _map_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(pages, dtype=dtype).reshape(shape)


def _map_tensors(path: Path) -> dict[str, Tensor]:
    """Returns every stored tensor as a view on one private map of the file; no bytes are copied."""
    with path.open("rb") as stream:
        # Private and copy-on-write instead of read-only, because torch has no read-only tensors; nothing writes to it.
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    return {
        name: torch.frombuffer(
            mapped, dtype=_DTYPES[tensor.dtype], count=math.prod(tensor.shape), offset=tensor.offset
        ).reshape(tensor.shape)
        for name, tensor in read_layout(path).items()
    }


class Libraries:
    """Loads libraries and gives them their constants; equal calls share one load.

    Args:
        directory: The artifact.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._weights = _map_tensors(directory / WEIGHTS_PATH)
        self._loaded: dict[tuple[str, tuple[tuple[str, str], ...]], Library] = {}

    def load(self, call: LibraryCall) -> Library:
        """Returns the library of a call.

        Raises:
            EngineError: It cannot be loaded here.
        """
        key = (call.library, tuple(sorted(call.constants.items())))
        if key not in self._loaded:
            constants = {name: self._weights[tensor] for name, tensor in call.constants.items()}
            self._loaded[key] = Library(self._directory / call.library, constants)
        return self._loaded[key]


class Library:
    """A loaded library with its constants.

    Args:
        path: The shared object.
        constants: By the library's names; they are used where they lie, so they are kept.

    Raises:
        EngineError: The shared object cannot be loaded.
    """

    def __init__(self, path: Path, constants: Mapping[str, Tensor]) -> None:
        self._constants = constants
        try:
            self._runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)
            self._runner.update_constant_buffer(dict(constants), False, False, True)
        except RuntimeError as error:
            raise EngineError("a library cannot be loaded", where=str(path), given=str(error)) from error

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Returns the one output."""
        outputs: list[Tensor] = self._runner.run(list(inputs))
        return outputs[0]


class InductorProgram:
    """A program's calls, in order.

    Args:
        entry: Of the manifest.
        directory: The artifact.
        libraries: Where they are loaded from.
    """

    def __init__(self, entry: Program, directory: Path, libraries: Libraries) -> None:
        program = read_program(directory / entry.path)
        self._embed = None if program.embed is None else libraries.load(program.embed)
        self._blocks = [libraries.load(call) for call in program.blocks]
        self.head = libraries.load(program.head)

    def hidden_states(self, input_ids: Ids, position_ids: Ids, cache: list[LayerCache], *live: Tensor) -> Tensor:
        """Returns [N, D] for [B, T] tokens, N = B * T, having written the cache.

        Args:
            input_ids: [B, T].
            position_ids: [B, T].
            cache: Of the B slots, layer by layer.
            live: For a prefill, the positions that are read, from 0 on; decode reads each slot to its own end.
        """
        assert self._embed is not None
        positions = torch.from_numpy(position_ids)
        x = self._embed(_two_or_more(input_ids), _two_or_more(position_ids))[: input_ids.size]
        for block, (keys, values) in zip(self._blocks, cache, strict=True):
            x = block(x, positions, keys, values, *live)
        return x


def _two_or_more(ids: Ids) -> Tensor:
    """Returns ids flat, a single one twice: the library that embeds any number of rows wants at least two."""
    flat = ids.reshape(-1)
    return torch.from_numpy(np.repeat(flat, 2) if flat.size == 1 else flat)


class InductorRunner:
    """The Runner over an artifact's libraries.

    Args:
        directory: The artifact; its files are taken as checked.
        manifest: Of that artifact.
        num_threads: Threads that compute; 0 for torch's choice, one per physical core.

    Raises:
        EngineError: A library cannot be loaded.
        ManifestError: A program file is malformed.
    """

    def __init__(self, directory: Path, manifest: Manifest, *, num_threads: int = 0) -> None:
        self._directory = directory
        self._num_threads = num_threads or torch.get_num_threads()
        self._thread: int | None = None
        self._libraries = Libraries(directory)
        self._cache = SlotTensors(manifest)
        self._live = torch.arange(live_len(manifest.max_seq_len))
        self._shape = RunnerShape(
            batch_size=manifest.batch_size,
            max_seq_len=manifest.max_seq_len,
            vocab_size=manifest.vocab_size,
            prefill_buckets=tuple(manifest.prefill_buckets),
            decode_buckets=tuple(manifest.decode_buckets),
        )
        self._entries = {(p.kind, p.bucket): p for p in manifest.programs}
        self._programs = {
            key: InductorProgram(entry, directory, self._libraries) for key, entry in self._entries.items()
        }

    @property
    def shape(self) -> RunnerShape:
        """The compiled shapes."""
        return self._shape

    def copy_prefix(self, copy: PrefixCopy) -> None:
        """Copies the first positions of one slot to another."""
        self._cache.copy_prefix(copy)

    def prefill(self, chunk: PrefillChunk) -> PrefillResult:
        """Writes the chunk into its slot. Costs one run of the bucket, and of the head program for all_logits."""
        self._enter_thread()
        program = self._programs["prefill", chunk.bucket]
        count, end = len(chunk.token_ids), chunk.start + chunk.bucket
        input_ids = np.zeros((1, chunk.bucket), np.int64)
        input_ids[0, :count] = chunk.token_ids
        position_ids = np.arange(chunk.start, end)[None]
        with torch.inference_mode():
            window = self._cache.window(chunk.slot, 1)
            x = program.hidden_states(input_ids, position_ids, window, *self._reach(chunk.bucket, end))
            last = program.head(x[count - 1 : count])[0].numpy()
            return PrefillResult(last, self._all_logits(x[:count]) if chunk.all_logits else None)

    def decode(self, batch: DecodeBatch) -> Logits:
        """Writes one token per row and returns [bucket, V] logits, valid until the next call."""
        self._enter_thread()
        program = self._programs["decode", batch.bucket]
        input_ids = np.array(batch.token_ids, np.int64)[:, None]
        position_ids = np.array(batch.lengths, np.int64)[:, None]
        with torch.inference_mode():
            window = self._cache.window(batch.first_slot, batch.bucket)
            logits: Logits = program.head(program.hidden_states(input_ids, position_ids, window)).numpy()
        return logits

    def _reach(self, bucket: int, end: int) -> tuple[Tensor, ...]:
        """Returns the positions that a chunk up to `end` reads; one of a single token is compiled like a decode."""
        return () if bucket == 1 else (self._live[: live_len(end)],)

    def _all_logits(self, hidden_states: Tensor) -> Logits:
        ((kind, bucket),) = (key for key in self._entries if key[0] == "head")
        head = self._programs[kind, bucket].head
        logits = np.empty((len(hidden_states), self._shape.vocab_size), np.float32)
        part = torch.zeros(bucket, hidden_states.shape[1])
        for start in range(0, len(hidden_states), bucket):
            rows = hidden_states[start : start + bucket]
            part[: len(rows)] = rows
            logits[start : start + len(rows)] = head(part)[: len(rows)].numpy()
        return logits

    def _enter_thread(self) -> None:
        """Sets the number of threads where OpenMP keeps it: with the thread that starts the others."""
        if self._thread != threading.get_ident():
            torch.set_num_threads(self._num_threads)
            self._thread = threading.get_ident()
