"""YAML files: Compose, Kubernetes, or the engine arguments that `vllm serve --config` takes."""

from __future__ import annotations

from llmpack.validate.model import JsonValue, ServingConfig, Setting
from llmpack.validate.readers.compose import is_compose, read_compose
from llmpack.validate.readers.engine_targets import resolve_engine_target
from llmpack.validate.readers.flags import name_of
from llmpack.validate.readers.kubernetes import find_config_maps, is_kubernetes, read_kubernetes
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.yaml_tree import YamlNode, parse_yaml
from llmpack.validate.vocabulary.engine_vocabulary import ENGINES, read_vocabulary

# Arguments of an engine that no other tool's YAML is likely to hold.
_TELLING_ARGUMENTS = frozenset(
    {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "compiled_model_dir"}
)
MAX_VALUE_NODES = 10_000
MAX_VALUE_DEPTH = 32


def read_yaml(source: SourceText) -> list[ServingConfig]:
    """The configs of all documents of the file; none for YAML of another use.

    Raises:
        UnreadableConfig: Not YAML, or a quote in a command is not closed.
    """
    configs: list[ServingConfig] = []
    documents = parse_yaml(source)
    config_maps = find_config_maps(documents)
    for document in documents:
        if is_kubernetes(document):
            configs += read_kubernetes(source, document, config_maps)
        elif is_compose(document):
            configs += read_compose(source, document)
        elif _is_engine_config(document):
            configs.append(_read_engine_config(source, document))
    return configs


def _is_engine_config(document: YamlNode) -> bool:
    """Whether it holds an argument that tells, and at least half of its keys are an engine's: training has such too."""
    names = [name_of(key.text or "") for key, _ in document.pairs or []]
    known = sum(any(name in read_vocabulary(engine).keys for engine in ENGINES) for name in names)
    return not _TELLING_ARGUMENTS.isdisjoint(names) and 2 * known >= len(names)


def _read_engine_config(source: SourceText, document: YamlNode) -> ServingConfig:
    budget = [MAX_VALUE_NODES]
    settings = tuple(
        Setting(
            name=name_of(key.text),
            value=_plain(value, budget, 0),
            spelling=key.text,
            location=source.location(value.start, key.text),
            span=source.span(value.start, value.end) if value.text is not None and value.start < value.end else None,
            key_span=source.span(key.start, key.end) if not key.style else None,
        )
        for key, value in document.pairs or []
        if key.text is not None
    )
    target = resolve_engine_target(settings, "vllm")
    return ServingConfig("kwargs", "file", source.path, target, source.location(document.start), settings)


def _plain(node: YamlNode, budget: list[int], depth: int) -> JsonValue:
    """The value without places; what exceeds the budget or the depth, as nested aliases do, is left out."""
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_VALUE_DEPTH:
        return None
    if node.pairs is not None:
        return {key.text or "": _plain(value, budget, depth + 1) for key, value in node.pairs}
    if node.items is not None:
        return [_plain(item, budget, depth + 1) for item in node.items]
    return node.scalar()
