"""What must hold between the fields of one manifest, beyond their types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from llmpack.artifact.manifest import MANIFEST_NAME, DtypeName, FileRecord, KvCache, LayerCache, Manifest

_SHA256 = re.compile(r"[0-9a-f]{64}")
ITEM_BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of a number, by dtype."""


def find_contradictions(manifest: Manifest) -> list[str]:
    """One sentence for each rule that `manifest` breaks, starting with the JSON path; empty when it is sound."""
    return [
        *_sizes(manifest),
        *_buckets(manifest),
        *_programs(manifest),
        *_kv_cache(manifest),
        *_special_tokens(manifest),
        *_files(manifest),
    ]


def kv_cache_bytes(
    layers: Sequence[LayerCache], *, batch_size: int, max_seq_len: int, dtype: DtypeName = "float32"
) -> int:
    """Bytes of keys and values of shape [B, K, S, E] over all layers."""
    values_per_token = sum(2 * layer.num_key_value_heads * layer.head_dim for layer in layers)
    return values_per_token * batch_size * max_seq_len * ITEM_BYTES[dtype]


def find_path_problem(path: str) -> str | None:
    """Why a manifest may not name `path`, or None: it must be relative, normalised and inside the artifact."""
    parts = PurePosixPath(path).parts
    if not parts or "\\" in path or "\0" in path:
        return "is not a relative path with forward slashes"
    if path.startswith("/") or ".." in parts:
        return "leaves the artifact"
    if "/".join(parts) != path:
        return "is not normalised"
    return "is the manifest itself" if path == MANIFEST_NAME else None


def _sizes(manifest: Manifest) -> Iterator[str]:
    names = (
        "max_seq_len",
        "batch_size",
        "tensor_parallel_size",
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_parameters",
    )
    for name in names:
        value = getattr(manifest, name)
        if value < 1:
            yield f"$.{name} is {value}, must be at least 1"


def _buckets(manifest: Manifest) -> Iterator[str]:
    limits = {"prefill_buckets": manifest.max_seq_len, "decode_buckets": manifest.batch_size}
    for name, limit in limits.items():
        buckets: list[int] = getattr(manifest, name)
        if not buckets or buckets != sorted(set(buckets)):
            yield f"$.{name} is {buckets}, must be ascending and not empty"
        elif buckets[0] < 1 or buckets[-1] > limit:
            yield f"$.{name} is {buckets}, each must be in [1, {limit}]"
    last = manifest.decode_buckets[-1] if manifest.decode_buckets else None
    if last != manifest.batch_size:
        yield f"$.decode_buckets ends with {last}, must end with batch_size {manifest.batch_size}"


def _programs(manifest: Manifest) -> Iterator[str]:
    programs = manifest.programs
    yield from (f"$.programs names {name} twice" for name in _repeated([program.name for program in programs]))
    for kind, wanted in (("prefill", manifest.prefill_buckets), ("decode", manifest.decode_buckets)):
        compiled = sorted({program.bucket for program in programs if program.kind == kind})
        if compiled != sorted(set(wanted)):
            yield f"$.programs has {kind} programs for {compiled}, $.{kind}_buckets is {wanted}"
    known = {record.path for record in manifest.files}
    for program in programs:
        if program.path not in known:
            yield f"$.programs: {program.name} is in {program.path}, which $.files does not list"
        for tensor in (*program.inputs, *program.outputs):
            free = program.kind == "logits"
            if any(dim < 1 and not (free and dim == -1) for dim in tensor.shape):
                yield f"$.programs: {tensor.name} of {program.name} has shape {tensor.shape}, must be positive"


def _kv_cache(manifest: Manifest) -> Iterator[str]:
    cache: KvCache = manifest.kv_cache
    if len(cache.layers) != manifest.num_hidden_layers:
        yield f"$.kv_cache.layers has {len(cache.layers)} entries, num_hidden_layers is {manifest.num_hidden_layers}"
    for index, layer in enumerate(cache.layers):
        if (layer.kind == "sliding") != (layer.window is not None):
            yield f"$.kv_cache.layers[{index}] is {layer.kind} with window {layer.window}"
    shape = {"batch_size": manifest.batch_size, "max_seq_len": manifest.max_seq_len}
    expected = kv_cache_bytes(cache.layers, **shape, dtype=cache.dtype)
    if cache.total_bytes != expected:
        yield f"$.kv_cache.total_bytes is {cache.total_bytes}, the shapes give {expected}"


def _special_tokens(manifest: Manifest) -> Iterator[str]:
    tokens = manifest.special_tokens
    eos = tokens.eos_token_ids
    if eos != sorted(set(eos)):
        yield f"$.special_tokens.eos_token_ids is {eos}, must be ascending"
    for token_id in (tokens.bos_token_id, tokens.pad_token_id, *eos):
        if token_id is not None and token_id < 0:
            yield f"$.special_tokens names the id {token_id}, must not be negative"


def _files(manifest: Manifest) -> Iterator[str]:
    paths = [record.path for record in manifest.files]
    yield from (f"$.files names {path} twice" for path in _repeated(paths))
    for index, record in enumerate(manifest.files):
        problem = find_path_problem(record.path)
        if problem is not None:
            yield f"$.files[{index}].path {record.path!r} {problem}"
        yield from _record(f"$.files[{index}]", record)
    for index, record in enumerate(manifest.source.files):
        yield from _record(f"$.source.files[{index}]", record)


def _record(where: str, record: FileRecord) -> Iterator[str]:
    if not _SHA256.fullmatch(record.sha256):
        yield f"{where}.sha256 is {record.sha256!r}, must be 64 lower-case hex digits"
    if record.size_bytes < 0:
        yield f"{where}.size_bytes is {record.size_bytes}, must not be negative"


def _repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
