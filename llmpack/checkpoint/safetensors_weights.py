"""Weights from a Hugging Face directory: model.safetensors, or an index and its shards."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from llmpack.checkpoint.defects import corrupt_checkpoint, tensor_missing
from llmpack.checkpoint.json_file import read_json
from llmpack.checkpoint.safetensors_header import Header, StoredTensor, read_header
from llmpack.checkpoint.weights import Tensor, TensorInfo, numpy_dtype
from llmpack.errors import CheckpointNotFound, CorruptCheckpoint, UnsafeCheckpoint, UnsupportedArchitecture

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SHOWN = 20  # of many like problems, as many as fit a screen


class SafetensorsWeights:
    """Tensors of one or more checked safetensors files; each `read` maps only the tensor's own bytes."""

    def __init__(self, tensors: dict[str, StoredTensor], files: list[Path]) -> None:
        """Keep the tensors.

        Args:
            tensors: By name.
            files: Each file that was read, the index first.
        """
        self._tensors = tensors
        self.files = files

    @property
    def total_bytes(self) -> int:
        """Size of all tensors."""
        return sum(tensor.info.num_bytes for tensor in self._tensors.values())

    def names(self) -> list[str]:
        """All tensor names, sorted."""
        return sorted(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """Dtype and shape of one tensor.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        return self._find(name).info

    def read(self, name: str) -> Tensor:
        """A read-only view of the file; its memory is given back with the array.

        Raises:
            CorruptCheckpoint: There is no such tensor.
        """
        tensor = self._find(name)
        dtype = numpy_dtype(tensor.info.dtype)
        if tensor.info.num_elements == 0:  # nothing to map
            return np.zeros(tensor.info.shape, dtype)
        # One mapping per tensor: what has been compiled does not stay in this process's resident memory.
        mapped = np.memmap(tensor.path, np.uint8, "r", offset=tensor.start, shape=(tensor.info.num_bytes,))
        array = np.asarray(mapped).view(dtype).reshape(tensor.info.shape)
        return array if array.flags.aligned else array.copy()

    def _find(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise tensor_missing(name, self.names())
        return self._tensors[name]


def open_safetensors(directory: Path) -> SafetensorsWeights:
    """The checked weights of `directory`; headers are read, data is not.

    As in transformers, model.safetensors wins over an index.

    Raises:
        CheckpointNotFound: The directory has no weights.
        UnsafeCheckpoint: It has only pickled ones.
        CorruptCheckpoint: Files or tensors are missing, left over, truncated or overlapping; all are named.
        UnsupportedArchitecture: Tensors are stored in fp8 or another packed format.
    """
    weight_map: dict[str, str] | None = None
    problems: list[str] = []
    if (directory / SINGLE_FILE).is_file():
        files = [directory / SINGLE_FILE]
    elif (directory / INDEX_FILE).is_file():
        weight_map = read_weight_map(directory / INDEX_FILE)
        files, problems = _find_shards(directory, weight_map)
    else:
        raise no_safetensors([path.name for path in directory.iterdir()], str(directory))
    headers = {path.name: read_header(path) for path in files}
    tensors, more = _merge(headers, weight_map)
    problems += [problem for header in headers.values() for problem in header.problems] + more
    if problems:
        raise corrupt_checkpoint(str(directory), problems)
    _check_supported(directory, headers)
    return SafetensorsWeights(tensors, files if weight_map is None else [directory / INDEX_FILE, *files])


def no_safetensors(file_names: list[str], place: str) -> CheckpointNotFound | UnsafeCheckpoint:
    """The error for a checkpoint that has none of the weight files llmpack reads.

    Args:
        file_names: What it has instead.
        place: The directory or repository, for the message.
    """
    pickled = sorted(name for name in file_names if name.endswith(PICKLE_SUFFIXES) and name != "training_args.bin")
    if pickled:
        return UnsafeCheckpoint(
            f"the weights are pickled ({', '.join(pickled[:_SHOWN])}), and unpickling can run any code",
            where=place,
            allowed=f"{SINGLE_FILE}, or {INDEX_FILE} with its shards",
            next_step='If you trust the author, convert it once: python -c "from transformers import '
            f"AutoModelForCausalLM as M; M.from_pretrained('{place}').save_pretrained('converted')\" "
            "(and copy the tokenizer files), then compile ./converted",
        )
    ggufs = sorted(name for name in file_names if name.endswith(".gguf"))
    hint = f"Pass one .gguf file itself: {', '.join(ggufs[:_SHOWN])}." if ggufs else "Is the download complete?"
    return CheckpointNotFound(
        "there are no weights",
        where=place,
        given=", ".join(sorted(file_names)[:_SHOWN]) or "an empty directory",
        allowed=f"{SINGLE_FILE}, or {INDEX_FILE} with its shards",
        next_step=hint,
    )


def read_weight_map(path: Path) -> dict[str, str]:
    """Tensor name -> shard file name of an index.

    Raises:
        CorruptCheckpoint: The index is not JSON, lacks `weight_map`, or points outside its directory.
    """
    weight_map: Any = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CorruptCheckpoint("the index has no usable weight_map", where=str(path))
    outside = sorted({shard for shard in weight_map.values() if PurePosixPath(shard).name != shard})
    if outside:
        raise CorruptCheckpoint(
            "the index names shards outside its directory",
            where=str(path),
            given=", ".join(outside),
            allowed="plain file names",
        )
    return weight_map


def _find_shards(directory: Path, weight_map: dict[str, str]) -> tuple[list[Path], list[str]]:
    files, problems = [], []
    for shard in sorted(set(weight_map.values())):
        if (directory / shard).is_file():
            files.append(directory / shard)
            continue
        lost = sorted(name for name, place in weight_map.items() if place == shard)
        problems.append(f"{shard}: the file is missing ({len(lost)} tensors, the first {lost[0]!r})")
    return files, problems


def _merge(headers: dict[str, Header], weight_map: dict[str, str] | None) -> tuple[dict[str, StoredTensor], list[str]]:
    tensors: dict[str, StoredTensor] = {}
    problems = []
    for file_name, header in headers.items():
        for name, tensor in header.tensors.items():
            if name in tensors:
                problems.append(f"{file_name}: tensor {name!r} is also in {tensors[name].path.name}")
            elif weight_map is not None and name not in weight_map:
                problems.append(f"{file_name}: tensor {name!r} is not in {INDEX_FILE}")
            tensors.setdefault(name, tensor)
    for name, shard in (weight_map or {}).items():
        # A shard that is missing or defective has been reported as a whole.
        sound = shard in headers and not headers[shard].problems
        if sound and name not in headers[shard].tensors and name not in headers[shard].unsupported:
            problems.append(f"{shard}: tensor {name!r} of {INDEX_FILE} is not in it")
    return tensors, problems


def _check_supported(directory: Path, headers: dict[str, Header]) -> None:
    packed = {name: dtype for header in headers.values() for name, dtype in header.unsupported.items()}
    if not packed:
        return
    shown = ", ".join(f"{name} ({dtype})" for name, dtype in sorted(packed.items())[:_SHOWN])
    raise UnsupportedArchitecture(
        f"{len(packed)} tensors are stored in a quantised format that is not supported yet",
        where=str(directory),
        given=shown,
        allowed="F64, F32, F16, BF16",
        next_step="Use the unquantised checkpoint of the same model.",
    )
