"""The manifest (`llmpack.json`): the one contract between the compiler and everyone who reads an artifact.

Strict in both directions: an unknown key, a missing key or a newer schema is an error, never a guess. The published
JSON Schema is generated from these types (`artifact/schema.py`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MANIFEST_NAME = "llmpack.json"
LOGITS_PATH = "logits.onnx"
SCHEMA_VERSION = 1

EngineName = Literal["onnxruntime", "inductor"]
RuntimeName = Literal["onnxruntime", "torch"]
DtypeName = Literal["float32", "bfloat16"]
ProgramKind = Literal["prefill", "decode", "head", "logits"]
CacheKind = Literal["full", "sliding"]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all manifest structs: immutable, no unknown keys."""


class FileRecord(_Strict, frozen=True):
    """A file and its content.

    Attributes:
        path: Relative to the artifact (or to the checkpoint, in `Source`), with forward slashes.
        sha256: Lower-case hex digest of the content.
        size_bytes: Size of the content.
    """

    path: str
    sha256: str
    size_bytes: int


class Source(_Strict, frozen=True):
    """Where the model came from.

    Attributes:
        kind: How MODEL was given.
        model: Hub repository id, or the name of the directory or .gguf file (without its parents).
        revision: The hub commit that every file was taken from; None for local checkpoints.
        files: Each source file that was read.
    """

    kind: Literal["hub", "directory", "gguf"]
    model: str
    revision: str | None
    files: list[FileRecord]


class Toolchain(_Strict, frozen=True):
    """Versions of everything that had a part in the compile."""

    llmpack: str
    python: str
    torch: str
    transformers: str
    onnx: str
    onnxscript: str
    onnxruntime: str


class RuntimeRange(_Strict, frozen=True):
    """Which runtimes may load the programs: minimum <= version < below."""

    name: RuntimeName
    minimum: str
    below: str


class TensorSpec(_Strict, frozen=True):
    """One input or output of a program; every dimension is a number, -1 for any size (in `logits` alone)."""

    name: str
    dtype: Literal["float32", "bfloat16", "int32", "int64"]
    shape: list[int]


class Program(_Strict, frozen=True):
    """One compiled program.

    Attributes:
        name: Such as `prefill-128`, `decode-8`, `head-32`.
        kind: `prefill` runs `bucket` tokens of one slot; `decode` one token of `bucket` slots; `head` turns `bucket`
            hidden states into logits (prompt logprobs); `logits` takes any number of whole rows of at most `bucket`
            tokens (Triton ensembles).
        bucket: The compiled size.
        path: File relative to the artifact: an ONNX model, or for inductor a list of calls to native libraries. ONNX
            Runtime by itself finds the weights from the artifact's root alone, so that is where `logits`, which others
            load, lies.
        inputs: In graph order, the cache tensors last.
        outputs: In graph order, the cache tensors last; each shares the buffer of its input.
    """

    name: str
    kind: ProgramKind
    bucket: int
    path: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


class LayerCache(_Strict, frozen=True):
    """The cache of one layer: `window` is the number of last positions attended to, None for all."""

    kind: CacheKind
    window: int | None
    num_key_value_heads: int
    head_dim: int


class KvCache(_Strict, frozen=True):
    """The slot cache of all layers; each layer holds keys and values of shape [B, K, S, E]."""

    dtype: DtypeName
    total_bytes: int
    layers: list[LayerCache]


class SpecialTokens(_Strict, frozen=True):
    """Ids that the runtime treats specially.

    Attributes:
        bos_token_id: Or None.
        eos_token_ids: Union of config, generation config, tokenizer and end-of-turn tokens, ascending.
        pad_token_id: Or None.
    """

    bos_token_id: int | None
    eos_token_ids: list[int]
    pad_token_id: int | None


class Measured(_Strict, frozen=True):
    """What the compile cost, on the machine that ran it. Left out of `build_id`."""

    compile_time_s: float
    peak_memory_bytes: int
    weights_bytes: int
    artifact_bytes: int


class Manifest(_Strict, frozen=True):
    """All facts about an artifact.

    Attributes:
        schema_version: `SCHEMA_VERSION` of the llmpack that wrote it.
        build_id: Hex sha256 over the manifest without `build_id` and `measured`, thus over every file's hash.
        architecture: Row name (Hugging Face's model_type), such as `llama`.
        engine: What runs the programs.
        dtype: Of the matrices and the cache; norms and what is added up are float32 in every case.
        quantization: Of the weights.
        max_seq_len: Tokens of a slot, prompt and output together.
        batch_size: Slots.
        tensor_parallel_size: Ranks.
        prefill_buckets: Ascending.
        decode_buckets: Ascending; the last is batch_size.
        vocab_size: Rows of the embedding, width of the logits.
        rope_table: Which of longrope's factor lists is compiled in; "default" for every other model.
        required_cpu_features: Names as in /proc/cpuinfo; empty when any x86-64 or arm64 will do.
        chat_template_sha256: Of the template's text, or None without one.
        files: Every file of the artifact but the manifest, by path.
    """

    schema_version: int
    build_id: str
    engine: EngineName
    architecture: str
    dtype: DtypeName
    quantization: Literal["none"]
    max_seq_len: int
    batch_size: int
    tensor_parallel_size: int
    prefill_buckets: list[int]
    decode_buckets: list[int]
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_parameters: int
    rope_table: Literal["default", "short", "long"]
    kv_cache: KvCache
    special_tokens: SpecialTokens
    chat_template_sha256: str | None
    programs: list[Program]
    required_cpu_features: list[str]
    runtime: RuntimeRange
    toolchain: Toolchain
    source: Source
    files: list[FileRecord]
    measured: Measured
