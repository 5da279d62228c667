"""A micro-kernel for inductor's C++ GEMM template that keeps a tile of the product in AVX-512 registers.

Inductor's own kernel for bfloat16 without AMX widens every weight to float32, three times slower than the AVX512_BF16
dot product at the batch sizes of decoding. Being the only candidate, it also gives every program the same packed
weights, so one copy on disk serves them all:

    weight [N, K] -> [N / 32, K, 32], and for bfloat16 [N / 32, K / 2, 32, 2]

Source: torch 2.13 `torch/_inductor/codegen/cpp_micro_gemm.py` (`CppMicroGemm`) for the interface; Intel intrinsics
guide for `_mm512_dpbf16_ps`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.select_algorithm  # Before the code generators: they import each other in this order.
from torch._inductor import cpu_vec_isa
from torch._inductor.codegen.common import KernelTemplate
from torch._inductor.codegen.cpp_micro_gemm import (
    CppMicroGemm,
    LayoutType,
    generate_gemm_config,
    micro_gemm_configs,
    register_micro_gemm,
)

from llmpack.artifact.library_program import PACKED_ROWS

_TILE_ROWS = 8

_SOURCE = r"""
template <int64_t ROWS, bool accum>
inline void {{kernel_name}}_tile(
    const {{input_t}}* A, const {{input2_t}}* B, {{output_t}}* C, int64_t K, int64_t lda, int64_t ldb, int64_t ldc
) {
    constexpr int COLS = {{block_n}} / 16;
    __m512 tile[ROWS * COLS];
    c10::ForcedUnroll<ROWS * COLS>{}([&](auto i) { tile[i] = _mm512_setzero_ps(); });
    for (int64_t k = 0; k < K; k += {{depth}}) {
        {{weight_vector}} b[COLS];
        c10::ForcedUnroll<COLS>{}([&](auto col) { b[col] = {{load_weight}}(B + k * ldb + col * 16 * {{depth}}); });
        c10::ForcedUnroll<ROWS>{}([&](auto row) {
            const auto a = {{broadcast}}(A + row * lda + k);
            c10::ForcedUnroll<COLS>{}([&](auto col) {
                constexpr int i = row * COLS + col;
                tile[i] = {{multiply_add}};
            });
        });
    }
    c10::ForcedUnroll<ROWS * COLS>{}([&](auto i) {
        float* c = C + (i / COLS) * ldc + (i % COLS) * 16;
        if constexpr (accum) tile[i] = _mm512_add_ps(tile[i], _mm512_loadu_ps(c));
        _mm512_storeu_ps(c, tile[i]);
    });
}

{{declare_kernel}} {
    {{kernel.assert_function}}(N % {{block_n}} == 0, "N must be whole tiles");
    {{kernel.assert_function}}(K % {{depth}} == 0, "K must be whole steps");
    for (int64_t m = 0; m < M; m += {{block_m}}) {
        for (int64_t n = 0; n < N; n += {{block_n}}) {
            switch (std::min<int64_t>(M - m, {{block_m}})) {
{%- for rows in range(1, block_m + 1) %}
                case {{rows}}:
                    {{kernel_name}}_tile<{{rows}}, accum>(A + m * lda, B + n, C + m * ldc + n, K, lda, ldb, ldc);
                    break;
{%- endfor %}
            }
        }
    }
}
"""

_FLOAT32 = {
    "depth": 1,
    "weight_vector": "__m512",
    "load_weight": "_mm512_loadu_ps",
    "broadcast": "[](const float* a) { return _mm512_set1_ps(*a); }",
    "multiply_add": "_mm512_fmadd_ps(a, b[col], tile[i])",
}
_BFLOAT16 = {
    "depth": 2,
    "weight_vector": "__m512bh",
    "load_weight": "[](const at::BFloat16* b) { return (__m512bh)_mm512_loadu_si512(b); }",
    "broadcast": "[](const at::BFloat16* a) { return (__m512bh)_mm512_set1_epi32(*(const int32_t*)a); }",
    "multiply_add": "_mm512_dpbf16_ps(tile[i], a, b[col])",
}


def _runs(config: Any, _m: int, _n: int, k: int, *_: Any, vec_isa: Any, **__: Any) -> bool:
    """Returns whether the kernel can multiply over k and this machine has its instructions."""
    if config.input_dtype == torch.float32:
        return True
    return k % 2 == 0 and bool(vec_isa.is_avx512_bf16_supported())


class RegisterTileGemm(CppMicroGemm):
    """C [M, N] (+)= A [M, K] @ B, for B packed by 32 columns."""

    def codegen_define(self, kernel: Any) -> str:
        """Returns the C++ source of the kernel."""
        variant = _BFLOAT16 if self.input_dtype == torch.bfloat16 else _FLOAT32
        options = {
            "declare_kernel": self.get_kernel_declaration(),  # type: ignore[no-untyped-call]
            "kernel": kernel,
            "block_m": self.register_blocking.block_m,
            "block_n": self.register_blocking.block_n,
            **self.get_common_options(),  # type: ignore[no-untyped-call]
            **variant,
        }
        return str(KernelTemplate._template_from_string(_SOURCE).render(options))

    def get_b_layout(self) -> LayoutType:
        """Returns how pairs of weights along K are interleaved."""
        return LayoutType.VNNI2 if self.input_dtype == torch.bfloat16 else LayoutType.NORMAL


def register() -> None:
    """Makes inductor choose the kernel from now on, in this process. May be called again."""
    if RegisterTileGemm in micro_gemm_configs:
        return
    _leave_out_amx()
    # Kernels for VNNI outrank those for plain AVX-512; every CPU with AVX512_BF16 has both.
    configs = [
        config
        for dtype, depth in ((torch.float32, 1), (torch.bfloat16, 2))
        for config in generate_gemm_config(  # type: ignore[no-untyped-call]
            cpu_vec_isa.VecAVX512VNNI,
            [(_TILE_ROWS, PACKED_ROWS, depth)],
            input_dtype=dtype,
            output_dtype=torch.float32,
            extra_check=_runs,
        )
    ]
    register_micro_gemm(*configs)(RegisterTileGemm)  # type: ignore[no-untyped-call]


def _leave_out_amx() -> None:
    """Hides AMX from inductor: its kernels for it outrank this one and want the weights packed in another way."""
    supported = cpu_vec_isa.supported_vec_isa_list
    supported[:] = [isa for isa in supported if not isinstance(isa, cpu_vec_isa.VecAMX)]
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
