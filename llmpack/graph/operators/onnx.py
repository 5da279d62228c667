"""The operators as the ONNX nodes they become.

Each function is called inside the torch decoder and leaves exactly one node in the exported graph (or one node and its
reshapes), so that no surgery is needed afterwards. Standard operators are opset 23; GroupQueryAttention is ONNX
Runtime's (`com.microsoft`, opset 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.onnx import ops

from llmpack.architectures.spec import AttentionSpec
from llmpack.graph.operators.interface import SlotState

OPSET_VERSION = 23

Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Returns rows [N, D] of a table [V, D] for ids [N]."""
    return nn.functional.embedding(ids, table)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x @ weight.T + bias for x [N, in] and weight [out, in].

    Gemm with transB reads the checkpoint's own layout, and a tied head reads the embedding itself.
    """
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return ops.symbolic("Gemm", inputs, {"transB": 1}, dtype=x.dtype, shape=(x.shape[0], weight.shape[0]))


def rotate(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, num_heads: int) -> Tensor:
    """Returns x [B, T, heads * E] with the leading 2 * cos.shape[1] dimensions of each head rotated by position.

    Source: ONNX RotaryEmbedding-23, half-split layout as in transformers' `rotate_half`.
    """
    attributes: Attributes = {"num_heads": num_heads}
    if 2 * cos.shape[1] != x.shape[2] // num_heads:
        attributes["rotary_embedding_dim"] = 2 * cos.shape[1]
    return ops.symbolic("RotaryEmbedding", (x, cos, sin, position_ids), attributes, dtype=x.dtype, shape=x.shape)


def slot_attention(
    qkv: tuple[Tensor, Tensor, Tensor], cache: tuple[Tensor, ...], state: SlotState, spec: AttentionSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ([B, T, H * E] attention, new keys, new values); the caches are written in place by the runner's binding.

        q, k, v ----------------+
        past keys, values ------+--> GroupQueryAttention --> output, present keys, present values
        seqlens_k, total length +    (each row reads its slot up to its own length)

    Args:
        qkv: [B, T, H * E], [B, T, K * E], [B, T, K * E].
        cache: Keys and values, each [B, K, S, E].
        state: Its reach is (seqlens_k, total_sequence_length): [B] int32 tokens in each slot after this call,
            minus one; [1] int32 maximum of seqlens_k + 1.
        spec: Heads, scale, softcap and window.

    Source: onnxruntime 1.32 `GroupQueryAttention`; a window of w attends to the last w positions, the own included.
    """
    attributes: Attributes = {
        "num_heads": spec.num_heads,
        "kv_num_heads": spec.num_key_value_heads,
        "scale": spec.scale,
    }
    if spec.window is not None:
        attributes["local_window_size"] = spec.window
    if spec.softcap:
        attributes["softcap"] = spec.softcap
    query = qkv[0]
    output, keys, values = ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        (*qkv, *cache, *state.reach),
        attributes,
        dtypes=(query.dtype,) * 3,
        shapes=(query.shape, cache[0].shape, cache[1].shape),
    )
    return output, keys, values
