"""The C++ of `llmpack::decode_attention`: every slot is read up to its own length, once, and nothing is written out.

    for each slot and key-value head, on some thread:
        for each run of positions:       keys  --> scores of G query heads --> maximum, weights
                                         values -- weighted --> G sums in float32
        sums / total weight --> output

The maximum may rise from run to run; sums are rescaled then (online softmax, Milakov and Gimelshein 2018). What a slot
gives depends on nothing but that slot, to the last bit.

Source: torch 2.13 `torch/_inductor/codegen/cpp_template.py` for the interface.
"""

from __future__ import annotations

from typing import Any

import torch._inductor.select_algorithm  # noqa: F401  # Before the code generators, which import each other so.
from torch._inductor import ir
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.codegen.cpp_utils import DTYPE_TO_CPP
from torch._inductor.lowering import lowerings, register_lowering
from torch._inductor.utils import parallel_num_threads

from llmpack.graph.operators.decode_attention import find_operator

_NAME = "decode_attention"

_SOURCE = r"""
{{template.header().getvalue()}}
namespace {
constexpr int64_t GROUPS = {{groups}}, SLOT = {{slot}}, WIDTH = {{width}}, RUN = 64;
constexpr int VECTORS = (WIDTH + 15) / 16;

inline __mmask16 lanes(int vector) {
    const int64_t left = WIDTH - 16 * vector;
    return left >= 16 ? 0xffff : static_cast<__mmask16>((1 << left) - 1);
}
inline __m512 load(const float* from, int vector) { return _mm512_maskz_loadu_ps(lanes(vector), from + 16 * vector); }
inline void store(float* to, int vector, __m512 x) { _mm512_mask_storeu_ps(to + 16 * vector, lanes(vector), x); }
inline __m512 load(const at::BFloat16* from, int vector) {
    const __m256i halves = _mm256_maskz_loadu_epi16(lanes(vector), from + 16 * vector);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline void store(at::BFloat16* to, int vector, __m512 x) {
    for (int lane = 0; lane < 16 && 16 * vector + lane < WIDTH; ++lane)
        to[16 * vector + lane] = static_cast<at::BFloat16>(reinterpret_cast<const float*>(&x)[lane]);
}

void attend(
    const float* query, const {{cache_t}}* keys, const {{cache_t}}* values, int64_t begin, int64_t end,
    {{cache_t}}* output
) {
    __m512 sums[GROUPS][VECTORS];
    float maximum[GROUPS], total[GROUPS];
    alignas(64) float weights[GROUPS][RUN];
    for (int g = 0; g < GROUPS; ++g) {
        maximum[g] = -std::numeric_limits<float>::infinity();
        total[g] = 0;
        for (int v = 0; v < VECTORS; ++v) sums[g][v] = _mm512_setzero_ps();
    }
    for (int64_t start = begin; start < end; start += RUN) {
        const int64_t count = std::min(RUN, end - start);
        for (int64_t s = 0; s < count; ++s) {
            __m512 products[GROUPS];
            for (int g = 0; g < GROUPS; ++g) products[g] = _mm512_setzero_ps();
            for (int v = 0; v < VECTORS; ++v) {
                const __m512 key = load(keys + (start + s) * WIDTH, v);
                for (int g = 0; g < GROUPS; ++g)
                    products[g] = _mm512_fmadd_ps(key, load(query + g * WIDTH, v), products[g]);
            }
            for (int g = 0; g < GROUPS; ++g) weights[g][s] = _mm512_reduce_add_ps(products[g]) * {{scale}}f;
        }
        for (int g = 0; g < GROUPS; ++g) {
{%- if softcap %}
            for (int64_t s = 0; s < count; ++s) weights[g][s] = std::tanh(weights[g][s] / {{softcap}}f) * {{softcap}}f;
{%- endif %}
            float highest = maximum[g];
            for (int64_t s = 0; s < count; ++s) highest = std::max(highest, weights[g][s]);
            const float shrink = std::exp(maximum[g] - highest);
            maximum[g] = highest;
            total[g] *= shrink;
            for (int v = 0; v < VECTORS; ++v) sums[g][v] = _mm512_mul_ps(sums[g][v], _mm512_set1_ps(shrink));
            for (int64_t s = count; s < RUN; ++s) weights[g][s] = -std::numeric_limits<float>::infinity();
            at::vec::Vectorized<float> part(0.0f);
            for (int64_t s = 0; s < RUN; s += 16) {
                const auto score = at::vec::Vectorized<float>::loadu(weights[g] + s);
                const auto weight = (score - at::vec::Vectorized<float>(highest)).exp();
                weight.store(weights[g] + s);
                part = part + weight;
            }
            total[g] += _mm512_reduce_add_ps(part);
        }
        for (int64_t s = 0; s < count; ++s)
            for (int v = 0; v < VECTORS; ++v) {
                const __m512 value = load(values + (start + s) * WIDTH, v);
                for (int g = 0; g < GROUPS; ++g)
                    sums[g][v] = _mm512_fmadd_ps(value, _mm512_set1_ps(weights[g][s]), sums[g][v]);
            }
    }
    for (int g = 0; g < GROUPS; ++g)
        for (int v = 0; v < VECTORS; ++v)
            store(output + g * WIDTH, v, _mm512_div_ps(sums[g][v], _mm512_set1_ps(total[g])));
}
}  // namespace

extern "C" {{kernel.def_kernel(
    inputs={"query": query, "keys": keys, "values": values, "position_ids": position_ids}, outputs={"output": output}
)}} {
    #pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < {{tasks}}; ++task) {
        const int64_t end = position_ids[task / {{heads}}] + 1;
        const int64_t slot = task * SLOT * WIDTH, row = task * GROUPS * WIDTH;
        attend(query + row, keys + slot, values + slot, std::max<int64_t>(0, end - {{window}}), end, output + row);
    }
}
"""


class DecodeAttention(CppTemplate):
    """The operator as C++ for fixed shapes.

    Args:
        inputs: query, keys, values, position_ids, contiguous.
        layout: Of the output.
        settings: Scale, softcap, window.
    """

    def __init__(self, inputs: list[Any], layout: Any, settings: list[float]) -> None:
        super().__init__(_NAME, inputs, layout, parallel_num_threads())
        self.settings = settings

    def render(  # type: ignore[override]  # torch passes these by name
        self, kernel: Any, template_buffer_node: Any = None, epilogue_nodes: Any = None, **_: Any
    ) -> str:
        """Returns the source. Nothing is fused behind it: the output is what the next product reads."""
        assert not epilogue_nodes
        query, keys, values, position_ids = self.input_nodes
        rows, heads, slot, width = (int(size) for size in keys.get_size())
        scale, softcap, window = self.settings
        options = {
            "template": self,
            "kernel": kernel,
            "query": query,
            "keys": keys,
            "values": values,
            "position_ids": position_ids,
            "output": template_buffer_node or self.output_node,
            "groups": int(query.get_size()[1]) // (heads * width),
            "slot": slot,
            "width": width,
            "heads": heads,
            "tasks": rows * heads,
            "cache_t": DTYPE_TO_CPP[keys.get_dtype()],
            "scale": float(scale),
            "softcap": float(softcap),
            "window": int(window),
        }
        return str(self._template_from_string(_SOURCE).render(**options))


def register() -> None:
    """Makes inductor lower the operator to the template from now on, in this process. May be called again."""
    operator = find_operator()
    if operator in lowerings:
        return

    @register_lowering(operator, type_promotion_kind=None)
    def lower(query: Any, keys: Any, values: Any, position_ids: Any, settings: list[float]) -> Any:
        inputs = [
            ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x))
            for x in (query, keys, values, position_ids)
        ]
        layout = ir.FixedLayout(keys.get_device(), keys.get_dtype(), query.get_size())
        return DecodeAttention(inputs, layout, settings).generate().output_node()  # type: ignore[no-untyped-call]
