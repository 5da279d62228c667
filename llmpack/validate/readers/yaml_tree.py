"""YAML documents with the place of every key and value, read event by event.

Aliases share the node that they name and are never copied, so a file of nested aliases stays as small as it is
written. Plain scalars are resolved as YAML 1.2 does, which is what Kubernetes and Compose users mean: `no` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import JsonValue
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import MappedText

MAX_DEPTH = 64
MAX_EVENTS = 100_000
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, JsonValue] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(slots=True)
class YamlNode:
    """A scalar, mapping or list.

    Attributes:
        start: Offset of the first character, quotes included.
        end: Offset behind the last one.
        text: Of a scalar, decoded; None for the others.
        style: `'`, `"`, `|`, `>` or empty for a plain scalar.
        pairs: Of a mapping, duplicates included; merges under the key `<<`.
        items: Of a list.
    """

    start: int
    end: int
    text: str | None = None
    style: str = ""
    pairs: list[tuple[YamlNode, YamlNode]] | None = None
    items: list[YamlNode] | None = None

    def get(self, key: str) -> YamlNode | None:
        """The value of `key`: the last of duplicates, else from a merge; None when absent or no mapping."""
        return self._get(key, set())

    def _get(self, key: str, seen: set[int]) -> YamlNode | None:
        if self.pairs is None or id(self) in seen:
            return None
        seen.add(id(self))
        own = [value for name, value in self.pairs if name.text == key]
        if own:
            return own[-1]
        for name, value in self.pairs:
            if name.text == "<<" and not name.style:
                for source in value.items or [value]:
                    if found := source._get(key, seen):
                        return found
        return None

    def scalar(self) -> JsonValue:
        """The typed value of a scalar; None for the others."""
        if self.text is None or self.style:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INTEGER.fullmatch(self.text) and len(self.text) < 300:
            return int(self.text)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


def parse_yaml(source: SourceText) -> list[YamlNode]:
    """The documents of the text, empty ones left out.

    Raises:
        UnreadableConfig: Not YAML, nested deeper than `MAX_DEPTH` or of more than `MAX_EVENTS` parts.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(source)
    try:
        for event in yaml.parse(source.text, Loader=loader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _not_yaml(source, error) from None
    except RecursionError:
        raise source.failure(f"deeper than {MAX_DEPTH} levels is no serving config", 0) from None
    return builder.documents


def walk_mappings(root: YamlNode) -> Iterator[YamlNode]:
    """Every mapping below `root`, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.pairs is not None:
            yield node
            waiting += [value for _, value in reversed(node.pairs)]
        waiting += reversed(node.items or [])


def map_scalar(source: SourceText, node: YamlNode) -> MappedText:
    """The scalar's text with its places, as far as it stands in the file as it reads."""
    text = node.text or ""
    if node.style in {"'", '"'}:
        is_same = source.text[node.start + 1 : node.end - 1] == text
        return MappedText(text, ((0, node.start + 1),) if is_same else (), node.start)
    if node.style == "|":
        return MappedText(text, _block_segments(source, node, text), node.start)
    is_same = source.text[node.start : node.end] == text
    return MappedText(text, ((0, node.start),) if is_same else _folded_segments(source, node, text), node.start)


def _block_segments(source: SourceText, node: YamlNode, text: str) -> tuple[tuple[int, int], ...]:
    """The lines of a block scalar, which are indented in the file; none if they do not line up."""
    at = source.text.find("\n", node.start) + 1
    segments: list[tuple[int, int]] = []
    offset = 0
    for line in text.splitlines(keepends=True):
        content = line.rstrip("\n")
        found = source.text.find(content, at) if content else at
        if found < 0 or source.text[at:found].strip():
            return ()
        segments.append((offset, found))
        at = source.text.find("\n", found + len(content)) + 1 or len(source.text)
        offset += len(line)
    return tuple(segments)


def _folded_segments(source: SourceText, node: YamlNode, text: str) -> tuple[tuple[int, int], ...]:
    """The words of a scalar that is folded from several lines."""
    segments: list[tuple[int, int]] = []
    at = source.text.find("\n", node.start) + 1 if node.style == ">" else node.start
    for match in re.finditer(r"\S+", text):
        found = source.text.find(match[0], at, node.end)
        if found < 0 or source.text[at:found].strip():
            return ()
        segments.append((match.start(), found))
        at = found + len(match[0])
    return tuple(segments)


def _not_yaml(source: SourceText, error: Any) -> UnreadableConfig:
    mark = getattr(error, "problem_mark", None)
    hint = ". It looks like a template: render it first" if "{{" in source.text else ""
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return source.failure(f"not YAML: {problem}{hint}", min(mark.index, len(source.text)) if mark else 0)


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not closed yet."""

    node: YamlNode
    anchor: str | None
    key: YamlNode | None = None


@dataclass(slots=True)
class _Builder:
    source: SourceText
    documents: list[YamlNode] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, YamlNode] = field(default_factory=dict)
    num_events: int = 0

    def take(self, event: Any) -> None:
        """Adds one event of the parser."""
        self.num_events += 1
        if self.num_events > MAX_EVENTS or len(self.open) > MAX_DEPTH:
            what = (
                f"more than {MAX_EVENTS} parts" if self.num_events > MAX_EVENTS else f"deeper than {MAX_DEPTH} levels"
            )
            raise self.source.failure(f"{what} is no serving config", event.start_mark.index)
        match type(event).__name__:
            case "DocumentStartEvent":
                self.anchors = {}
            case "AliasEvent":
                self._add(self._aliased(event))
            case "ScalarEvent":
                style = event.style or ""
                node = YamlNode(event.start_mark.index, event.end_mark.index, event.value, style)
                self._close(node, event.anchor)
            case "MappingStartEvent":
                self.open.append(_Open(YamlNode(event.start_mark.index, event.end_mark.index, pairs=[]), event.anchor))
            case "SequenceStartEvent":
                self.open.append(_Open(YamlNode(event.start_mark.index, event.end_mark.index, items=[]), event.anchor))
            case "MappingEndEvent" | "SequenceEndEvent":
                done = self.open.pop()
                done.node.end = event.end_mark.index
                self._close(done.node, done.anchor)

    def _aliased(self, event: Any) -> YamlNode:
        node = self.anchors.get(event.anchor)
        if node is None:
            raise self.source.failure(f"not YAML: no value is named &{event.anchor} before", event.start_mark.index)
        return node

    def _close(self, node: YamlNode, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        self._add(node)

    def _add(self, node: YamlNode) -> None:
        if not self.open:
            self.documents.append(node)
            return
        parent = self.open[-1]
        if parent.node.items is not None:
            parent.node.items.append(node)
        elif parent.key is None:
            parent.key = node
        elif parent.node.pairs is not None:
            parent.node.pairs.append((parent.key, node))
            parent.key = None
