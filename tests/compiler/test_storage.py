"""In which form parameters are stored for the inductor engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from llmpack.architectures.weights import EMBEDDING, Parameter
from llmpack.artifact.library_program import PACKED_ROWS
from llmpack.compiler.storage import StoredForm, list_forms, pack_tiles, store
from llmpack.plan.plan import CompilePlan

ROWS, COLUMNS = 75, 6
MATRIX = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
PARAMETER = Parameter("layers.0.mlp.down.weight", (ROWS, COLUMNS), ())


def stored(form: StoredForm, chunks: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(part).reshape(-1) for part in store(form, chunks)])


def test_a_packed_row_lies_in_a_column_of_its_tile() -> None:
    form = StoredForm(PARAMETER, "float32", packed=True)
    tiles = stored(form, [MATRIX]).reshape(form.shape)
    assert form.shape == (3, COLUMNS, PACKED_ROWS)
    for row in (0, 31, 32, 74):
        np.testing.assert_array_equal(tiles[row // PACKED_ROWS, :, row % PACKED_ROWS], MATRIX[row])
    assert not tiles[2, :, ROWS % PACKED_ROWS :].any()


def test_bfloat16_lies_in_pairs() -> None:
    form = StoredForm(PARAMETER, "bfloat16", packed=True)
    pairs = stored(form, [MATRIX]).reshape(3, COLUMNS // 2, PACKED_ROWS, 2)
    assert pairs.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(pairs[1, :, 5].reshape(-1), MATRIX[37].astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("cuts", [[32], [1, 2, 40], [31, 33, 64, 74]])
def test_chunks_do_not_show(cuts: list[int]) -> None:
    form = StoredForm(PARAMETER, "float32", packed=True)
    np.testing.assert_array_equal(stored(form, np.split(MATRIX, cuts)), stored(form, [MATRIX]))


def test_packing_is_what_inductor_would_do() -> None:
    """Its own code packs, for the kernel that the libraries are compiled with."""
    torch = pytest.importorskip("torch")
    from torch._inductor import select_algorithm  # noqa: F401  # Before the code generators.
    from torch._inductor.codegen.cpp_gemm_template import CppGemmTemplate

    from llmpack.graph.inductor.micro_gemm import RegisterTileGemm

    weight = torch.randn(64, COLUMNS)
    size = [2, COLUMNS, PACKED_ROWS]
    for dtype, numpy_dtype in ((torch.float32, np.float32), (torch.bfloat16, ml_dtypes.bfloat16)):
        kernel = RegisterTileGemm("kernel", dtype, dtype, torch.float32, torch.float32, (8, PACKED_ROWS, 2))
        blocked = CppGemmTemplate.block_weight(weight.to(dtype).T, size, 0)
        expected = CppGemmTemplate.pack_vnni_weight(blocked, kernel, size).float().numpy().reshape(-1)
        given = pack_tiles(weight.numpy().astype(numpy_dtype))
        np.testing.assert_array_equal(np.ascontiguousarray(given).astype(np.float32).reshape(-1), expected)


def test_a_tied_embedding_is_stored_for_both_its_uses() -> None:
    parameters = [
        Parameter(EMBEDDING, (97, 8), ()),
        Parameter("positions.weight", (16, 8), ()),
        Parameter("final_norm.weight", (8,), ()),
        PARAMETER,
    ]
    forms = list_forms(parameters, fake_plan(), tied=True)
    assert [(form.name, form.dtype) for form in forms] == [
        ("embedding.weight", "bfloat16"),
        ("embedding.weight.packed", "bfloat16"),
        ("positions.weight", "bfloat16"),
        ("final_norm.weight", "float32"),
        ("layers.0.mlp.down.weight.packed", "bfloat16"),
    ]
    assert len(list_forms(parameters, fake_plan(), tied=False)) == 4


def fake_plan() -> Any:
    plan = object.__new__(CompilePlan)
    for name, value in {"engine": "inductor", "dtype": "bfloat16"}.items():
        object.__setattr__(plan, name, value)
    return plan
