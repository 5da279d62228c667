"""Facts from OpenVINO Model Server's `graph.pbtxt` for text generation and, beside it, `openvino_config.json`.

Source: OpenVINO Model Server documentation, "LLM calculator": the node's options hold models_path, cache_size,
max_num_seqs (256 when absent), max_num_batched_tokens (256 when absent), block_size, device and
enable_prefix_caching.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmpack.errors import ArtifactError, UnreadableConfig
from llmpack.validate.artifacts.checkpoint_files import find_file_problems
from llmpack.validate.artifacts.json_facts import int_at, plain_dtype, read_object_if_there, str_at
from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.readers.pbtxt_text import PbField, parse_pbtxt
from llmpack.validate.readers.source_text import SourceText, read_source

FACT_FILE = "graph.pbtxt"
_DEFAULT_LIMIT = 256
_OPTIONS_TYPE = "LLMCalculatorOptions"
# Protobuf text names an `Any` or an extension in brackets; to find the options the name does not matter.
_BRACKETED_NAME = re.compile(r"\[[A-Za-z][\w ./]*\.[\w ./]*\]")


def is_openvino_graph(file: Path) -> bool:
    """Whether a `graph.pbtxt` configures text generation."""
    try:
        return _OPTIONS_TYPE in file.read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return False


def read_openvino_facts(root: Path) -> ArtifactFacts:
    """The facts of a model directory of OpenVINO Model Server.

    Raises:
        ArtifactError: A file cannot be used.
    """
    options = _read_options(root / FACT_FILE)
    models = root / options.get("models_path", "./")
    checkpoint = read_object_if_there(models / "config.json")
    openvino = read_object_if_there(models / "openvino_config.json")
    device = options.get("device", "CPU").lower()
    return ArtifactFacts(
        kind="openvino",
        path=str(root),
        fact_file=FACT_FILE,
        is_fixed_shape=False,
        batch_size=_number(options, "max_num_seqs", _DEFAULT_LIMIT),
        max_seq_len=int_at(checkpoint, "max_position_embeddings"),
        kv_block_size=_number(options, "block_size", None),
        max_num_batched_tokens=_number(options, "max_num_batched_tokens", _DEFAULT_LIMIT),
        tensor_parallel_size=1,
        num_attention_heads=int_at(checkpoint, "num_attention_heads"),
        num_key_value_heads=int_at(checkpoint, "num_key_value_heads"),
        devices=(device,),
        dtype=plain_dtype(str_at(openvino, "dtype")),
        model_id=str_at(checkpoint, "_name_or_path"),
        vocab_size=int_at(checkpoint, "vocab_size"),
        features=frozenset({"prefix-caching"} if options.get("enable_prefix_caching") == "true" else ()),
        problems=tuple(find_file_problems(root)),
        checked_topics=frozenset({"files"}),
    )


def _read_options(file: Path) -> dict[str, str]:
    try:
        text = _BRACKETED_NAME.sub("bracketed_name", read_source(file).text)
        root = parse_pbtxt(SourceText(text, str(file))).root
    except UnreadableConfig as error:
        raise ArtifactError(str(error), where=str(file)) from error
    return {field.name: field.scalar for field in _option_fields(root) if field.scalar is not None}


def _option_fields(message: PbField) -> Iterator[PbField]:
    """Fields of the calculator's options, which stand in a message behind `[type.googleapis.com/...]:`."""
    for node in message.all("node"):
        for options in node.all("node_options"):
            for inner in options.fields or ():
                yield from inner.fields or ()


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    return int(text) if text.isdecimal() else None
