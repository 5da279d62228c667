"""What is going to be compiled: every shape a number, every choice made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmpack.architectures.rope import RopeTable, choose_rope_table
from llmpack.architectures.spec import DecoderSpec
from llmpack.artifact.consistency import ITEM_BYTES
from llmpack.artifact.manifest import DtypeName, EngineName, ProgramKind
from llmpack.errors import PlanError
from llmpack.plan.engine import choose_dtype, choose_engine
from llmpack.plan.options import CompileOptions

DEFAULT_MAX_SEQ_LEN = 2048
DEFAULT_PREFILL_BUCKETS = (32, 128)
HEAD_BUCKET = 32


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One program to compile: `bucket` tokens of a slot, slots of one token, hidden states, or tokens of whole rows."""

    kind: ProgramKind
    bucket: int

    @property
    def name(self) -> str:
        """File stem and manifest name, such as `prefill-128`; there is one `logits` only."""
        return self.kind if self.kind == "logits" else f"{self.kind}-{self.bucket}"


@dataclass(frozen=True, slots=True)
class CompilePlan:
    """The resolved compile. Buckets are ascending; the last decode bucket is batch_size; `logits` adds that program."""

    spec: DecoderSpec
    engine: EngineName
    dtype: DtypeName
    max_seq_len: int
    batch_size: int
    prefill_buckets: tuple[int, ...]
    decode_buckets: tuple[int, ...]
    rope_table: RopeTable
    logits: bool = False

    @property
    def programs(self) -> tuple[ProgramPlan, ...]:
        """Every program, prefill first, `logits` last."""
        prefill = tuple(ProgramPlan("prefill", bucket) for bucket in self.prefill_buckets)
        decode = tuple(ProgramPlan("decode", bucket) for bucket in self.decode_buckets)
        logits = (ProgramPlan("logits", self.max_seq_len),) if self.logits else ()
        return (*prefill, *decode, ProgramPlan("head", min(HEAD_BUCKET, self.max_seq_len)), *logits)

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of keys and values of all slots and layers."""
        heads = (layer.attention for layer in self.spec.layers)
        per_token = sum(2 * a.num_key_value_heads * a.head_dim * ITEM_BYTES[self.dtype] for a in heads)
        return per_token * self.batch_size * self.max_seq_len


def build_plan(spec: DecoderSpec, options: CompileOptions, *, stored_dtype: str = "float32") -> CompilePlan:
    """Returns the plan for a decoder.

    Args:
        spec: What is compiled.
        options: What was asked for.
        stored_dtype: Of the checkpoint's tensors.

    Raises:
        PlanError: A shape is not positive, exceeds the model, or the engine cannot run it.
    """
    check_choices(options)
    engine = choose_engine(options)
    dtype = choose_dtype(options, engine, stored_dtype)
    max_seq_len = options.max_seq_len or min(spec.max_position_embeddings, DEFAULT_MAX_SEQ_LEN)
    _check_range("max_seq_len", max_seq_len, 2, spec.max_position_embeddings)
    _check_range("batch_size", options.batch_size, 1, 4096)
    _check_heads(spec, engine)
    _check_pairs(spec, dtype)
    default_prefill = tuple(b for b in DEFAULT_PREFILL_BUCKETS if b <= max_seq_len) or (max_seq_len,)
    prefill = _check_buckets("prefill_buckets", options.prefill_buckets or default_prefill, max_seq_len)
    decode = _check_buckets("decode_buckets", options.decode_buckets or (1, options.batch_size), options.batch_size)
    if decode[-1] != options.batch_size:
        raise PlanError(
            "the largest decode bucket must be the batch size",
            where="--decode-buckets",
            given=list(decode),
            allowed=f"ascending widths that end with {options.batch_size}",
        )
    table = choose_rope_table(spec.ropes, max_seq_len)
    return CompilePlan(
        spec, engine, dtype, max_seq_len, options.batch_size, prefill, decode, table, _check_logits(options, engine)
    )


def _check_logits(options: CompileOptions, engine: EngineName) -> bool:
    """Returns whether the program `logits` is wanted: Triton's ONNX Runtime backend serves it, so it is ONNX."""
    if options.logits and engine != "onnxruntime":
        raise PlanError(
            "the program for Triton ensembles is an ONNX model",
            where="--logits",
            given=f"--engine {engine}",
            allowed="--engine onnxruntime",
        )
    return options.logits


def check_choices(options: CompileOptions) -> None:
    """Passes when engine, quantisation and ranks are ones that exist, whatever the model.

    Raises:
        PlanError: One is not.
    """
    choose_engine(options)
    if options.quantize != "none":
        raise PlanError("unknown quantisation", where="--quantize", given=options.quantize, allowed="none")
    if options.tensor_parallel_size != 1:
        raise PlanError(
            "programs run on one rank",
            where="--tensor-parallel-size",
            given=options.tensor_parallel_size,
            allowed="1",
        )


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        option = "--" + name.replace("_", "-")
        raise PlanError(f"{name} is out of range", where=option, given=value, allowed=f"{low} to {high} for this model")


def _check_buckets(name: str, buckets: tuple[int, ...], largest: int) -> tuple[int, ...]:
    option = "--" + name.replace("_", "-")
    for bucket in buckets:
        if not 1 <= bucket <= largest:
            raise PlanError("a bucket is out of range", where=option, given=bucket, allowed=f"1 to {largest}")
    return tuple(sorted(set(buckets)))


def _check_pairs(spec: DecoderSpec, dtype: DtypeName) -> None:
    """Products in bfloat16 take the numbers of a row in pairs."""
    if dtype != "bfloat16":
        return
    widths = {"hidden_size": spec.hidden_size}
    for layer in spec.layers:
        widths |= {"intermediate_size": layer.mlp.width, "heads": layer.attention.num_heads * layer.attention.head_dim}
        for name, width in widths.items():
            if width % 2:
                raise PlanError(
                    f"{name} must be even to compute in bfloat16",
                    where="--dtype",
                    given=f"{dtype}, {name} {width}",
                    allowed="float32",
                )


def _check_heads(spec: DecoderSpec, engine: EngineName) -> None:
    """ONNX Runtime's GroupQueryAttention takes head sizes that are multiples of 8 (1.32, CPU)."""
    for layer in spec.layers:
        attention = layer.attention
        if engine == "onnxruntime" and attention.head_dim % 8:
            raise PlanError(
                "the onnxruntime engine cannot run this head size",
                where="config.json head_dim",
                given=attention.head_dim,
                allowed="multiples of 8",
            )
        if math.remainder(attention.num_heads, attention.num_key_value_heads):
            raise PlanError(
                "query heads do not share key-value heads evenly",
                where="config.json num_key_value_heads",
                given=f"{attention.num_heads} query heads over {attention.num_key_value_heads}",
            )
