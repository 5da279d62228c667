"""Weights come out as they were stored, and a damaged file is refused with every defect named."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from llmpack.checkpoint.safetensors_header import read_header
from llmpack.checkpoint.safetensors_weights import open_safetensors
from llmpack.errors import CheckpointNotFound, CorruptCheckpoint, UnsafeCheckpoint, UnsupportedArchitecture
from tests.checkpoint.files import (
    DATA,
    ENTRIES,
    entries_except,
    one_tensor,
    write_index,
    write_safetensors,
    write_sharded,
    write_single,
)


def test_every_dtype_of_the_library_comes_back(tmp_path: Path) -> None:
    dtypes = ["float64", "float32", "float16", ml_dtypes.bfloat16, "int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {f"t{i}": np.arange(6).reshape(2, 3).astype(dtype) for i, dtype in enumerate(dtypes)}
    tensors |= {"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 4), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    weights = open_safetensors(tmp_path)
    assert weights.names() == sorted(tensors)
    for name, expected in tensors.items():
        array = weights.read(name)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
        assert weights.info(name).shape == expected.shape
        assert weights.info(name).dtype == expected.dtype.name
    assert weights.total_bytes == sum(tensor.nbytes for tensor in tensors.values())


def test_a_real_file_reads_as_the_library_reads_it() -> None:
    directory = Path(__file__).parents[1] / "data" / "stories260K"
    weights, expected = open_safetensors(directory), load_file(directory / "model.safetensors")
    assert weights.names() == sorted(expected)
    assert all(np.array_equal(weights.read(name), tensor) for name, tensor in expected.items())


def test_a_tensor_is_a_view_of_the_file_that_cannot_be_written(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    array = open_safetensors(tmp_path).read("a")
    assert array.base is not None
    assert not array.flags.writeable


def test_a_tensor_off_its_alignment_is_still_read_right(tmp_path: Path) -> None:
    header = json.dumps(ENTRIES).encode()
    for padding in range(4):
        write_safetensors(tmp_path / "model.safetensors", header + b" " * padding)
        array = open_safetensors(tmp_path).read("b")
        assert array.tobytes() == DATA[8:16]
        assert array.flags.aligned


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    weights = open_safetensors(write_sharded(tmp_path))
    assert weights.names() == ["a", "b"]
    assert weights.read("a").tobytes() + weights.read("b").tobytes() == DATA[:16]
    assert [path.name for path in weights.files] == [
        "model.safetensors.index.json",
        "one.safetensors",
        "two.safetensors",
    ]


def test_an_unknown_name_lists_the_nearest(tmp_path: Path) -> None:
    save_file({"model.norm.weight": np.zeros(2, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(CorruptCheckpoint, match=r"model\.norms\.weight.*nearest: model\.norm\.weight"):
        open_safetensors(tmp_path).read("model.norms.weight")


BROKEN_FILES = {
    "too short": (b"1234567", None, "too short"),
    "header longer than the file": ((10**6).to_bytes(8, "little") + b"{}", None, "truncated: the header needs"),
    "absurd header length": (b"\xff" * 32, None, "not a safetensors file"),
    "garbage header": (None, (b"{not json", DATA), "unreadable header"),
    "header not UTF-8": (None, (b'{"\xff": 1}', DATA), "unreadable header"),
    "header not an object": (None, (b"[]", DATA), "not a JSON object"),
    "tensor twice": (None, (b'{"a": {}, "a": {}}', DATA), "a stands there twice"),
    "no dtype": (None, ({"a": {"shape": [2], "data_offsets": [0, 8]}}, DATA[:8]), "'a' lacks dtype"),
    "negative shape": (None, (entries_except("b", shape=[-2]), DATA), "'b' has an unusable"),
    "unknown dtype": (None, (entries_except("b", dtype="F31"), DATA), "'b' has the unknown dtype 'F31'"),
    "shape and span differ": (None, (entries_except("b", shape=[3]), DATA), "'b' spans 8 bytes, but F32 .3. needs 12"),
    "ends before it begins": (None, (entries_except("b", data_offsets=[8, 0]), DATA), "'b' ends .* before it begins"),
    "overlap": (None, (entries_except("b", data_offsets=[4, 12]), DATA), "'b' overlaps tensor 'a'"),
    "hole": (None, ({"a": ENTRIES["a"], "c": ENTRIES["c"]}, DATA), "8 unclaimed bytes before tensor 'c'"),
    "data truncated": (None, (ENTRIES, DATA[:-1]), "'c' ends at byte .*truncated"),
    "trailing bytes": (None, (ENTRIES, DATA + b"x"), "1 bytes follow the last tensor"),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, case: str) -> None:
    raw, parts, message = BROKEN_FILES[case]
    path = tmp_path / "model.safetensors"
    if raw is not None:
        path.write_bytes(raw)
    else:
        write_safetensors(path, *parts)
    with pytest.raises(CorruptCheckpoint, match=rf"model\.safetensors: .*{message}"):
        open_safetensors(tmp_path)


@given(st.binary(max_size=64))
def test_no_bytes_crash_the_header_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    path.write_bytes(content)
    header = read_header(path)
    assert header.problems or not header.tensors


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (write_sharded(tmp_path) / "two.safetensors").unlink()
    with pytest.raises(CorruptCheckpoint, match=r"two\.safetensors: the file is missing \(1 tensors, the first 'b'\)"):
        open_safetensors(tmp_path)


def test_a_tensor_of_the_index_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors", "z": "two.safetensors"})
    with pytest.raises(CorruptCheckpoint, match=r"two\.safetensors: tensor 'z' .* is not in it"):
        open_safetensors(tmp_path)


def test_a_tensor_that_the_index_lacks_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    entries = ENTRIES | {"b": ENTRIES["a"], "a2": ENTRIES["b"]}
    del entries["a"], entries["c"]
    write_safetensors(tmp_path / "two.safetensors", entries, DATA[:16])
    with pytest.raises(CorruptCheckpoint, match=r"two\.safetensors: tensor 'a2' is not in model\.safetensors\.index"):
        open_safetensors(tmp_path)


def test_a_tensor_in_two_shards_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    write_safetensors(tmp_path / "two.safetensors", {"a": ENTRIES["a"], "b": ENTRIES["b"]}, DATA[:16])
    with pytest.raises(CorruptCheckpoint, match=r"two\.safetensors: tensor 'a' is also in one\.safetensors"):
        open_safetensors(tmp_path)


def test_all_problems_come_in_one_message(tmp_path: Path) -> None:
    write_sharded(tmp_path)
    write_safetensors(tmp_path / "one.safetensors", one_tensor("a"), DATA[:7])
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(CorruptCheckpoint) as caught:
        open_safetensors(tmp_path)
    assert "one.safetensors: tensor 'a' ends" in str(caught.value)
    assert "two.safetensors: the file is missing" in str(caught.value)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "sub/two.safetensors"])
def test_an_index_may_not_point_outside(tmp_path: Path, shard: str) -> None:
    write_sharded(tmp_path)
    write_index(tmp_path, {"a": "one.safetensors", "b": shard})
    with pytest.raises(CorruptCheckpoint, match="outside its directory"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": {"a": 1}}'])
def test_an_unusable_index_is_refused(tmp_path: Path, content: str) -> None:
    (write_sharded(tmp_path) / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CorruptCheckpoint, match=r"model\.safetensors\.index\.json"):
        open_safetensors(tmp_path)


def test_fp8_is_refused_as_not_supported(tmp_path: Path) -> None:
    entries = {"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}
    write_safetensors(tmp_path / "model.safetensors", entries, DATA[:8])
    with pytest.raises(UnsupportedArchitecture, match=r"not supported yet.*a \(F8_E4M3\)"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.ckpt"])
def test_pickles_are_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(UnsafeCheckpoint, match=rf"{name}.*save_pretrained"):
        open_safetensors(tmp_path)


def test_safetensors_win_over_a_pickle_beside_them(tmp_path: Path) -> None:
    (write_single(tmp_path) / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert open_safetensors(tmp_path).names() == ["a", "b", "c"]


def test_a_directory_without_weights_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointNotFound, match=r"no weights.*consolidated\.safetensors"):
        open_safetensors(tmp_path)
