"""Words out of YAML: a command as one text or as a list of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llmpack.validate.readers.expansion import MAX_EXPANDED_CHARACTERS, expand
from llmpack.validate.readers.shell import split_commands
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import MappedText, Word
from llmpack.validate.readers.yaml_tree import YamlNode, map_scalar


def read_arguments(
    source: SourceText, node: YamlNode | None, variables: Mapping[str, str], *, is_kubernetes: bool = False
) -> list[Word]:
    """The words of a command: a list's items, or a text split as a shell splits it.

    Raises:
        UnreadableConfig: A quote in the text is not closed.
    """
    if node is None:
        return []
    if node.items is not None:
        return [
            item_word(source, item, variables, is_kubernetes=is_kubernetes)
            for item in node.items
            if item.text is not None
        ]
    mapped = map_scalar(source, node)
    commands = split_commands(source, mapped, variables, is_kubernetes=is_kubernetes)
    return list(commands[0].words) if commands else []


def item_word(source: SourceText, node: YamlNode, variables: Mapping[str, str], *, is_kubernetes: bool = False) -> Word:
    """One scalar as one word, variables replaced."""
    return replace(
        expand_all(map_scalar(source, node), variables, is_kubernetes=is_kubernetes), start=node.start, end=node.end
    )


def expand_all(mapped: MappedText, variables: Mapping[str, str], *, is_kubernetes: bool = False) -> Word:
    """The whole text as one word. In Kubernetes only `$(NAME)` is a variable, elsewhere `$NAME` and `${NAME}`."""
    characters: list[str] = []
    offsets: list[int] = []
    at = 0
    while at < len(mapped.text):
        dollar = mapped.text.find("$(" if is_kubernetes else "$", at)
        end = dollar if dollar >= 0 else len(mapped.text)
        characters.append(mapped.text[at:end])
        offsets.extend(mapped.offsets(at, end))
        at = end
        if dollar >= 0:
            known = variables if len(offsets) < MAX_EXPANDED_CHARACTERS else {}
            expansion = expand(mapped, at, known, is_kubernetes=is_kubernetes)
            characters.append(expansion.text)
            offsets.extend(expansion.offsets)
            at = expansion.end
    return Word("".join(characters), tuple(offsets), mapped.anchor, mapped.anchor + len(mapped.text))
