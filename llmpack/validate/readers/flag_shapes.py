"""How many words follow a flag, and what short flags stand for: read from the vocabularies of all engines.

A truth value takes no word, a list takes several, all else takes one. Where the words themselves do not tell, the
union of all engines and releases decides: no flag has changed from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from llmpack.validate.vocabulary.engine_vocabulary import ENGINES, Vocabulary, read_vocabulary

# Every argument parser has these two, and no vocabulary lists them.
_ARGPARSE_FLAGS = {"-h": "help", "-v": "version"}
# Source: vLLM, `cli_args.py` and `arg_utils.py` of 0.3 to 0.13: lists that are one JSON word, or one word at a time.
_ONE_WORD_LISTS = frozenset({"allowed_origins", "allowed_methods", "allowed_headers", "middleware"})
# The same source: `nargs` of flags whose type is not that of a list.
_MANY_WORDS = frozenset({"ignore_patterns", "limit_mm_per_prompt", "prompt_adapters"})


@dataclass(frozen=True, slots=True)
class FlagShapes:
    """What the vocabularies say about flags.

    Attributes:
        boolean: Canonical names of flags without a value.
        many_valued: Of flags that take every word up to the next flag.
        short: Canonical names by short flag (`-tp`).
    """

    boolean: frozenset[str]
    many_valued: frozenset[str]
    short: Mapping[str, str]


@cache
def flag_shapes() -> FlagShapes:
    """The shapes of all flags that any engine has."""
    vocabularies = [read_vocabulary(engine) for engine in ENGINES]
    short = {flag: name for vocabulary in vocabularies for flag, name in vocabulary.short_flags.items()}
    return FlagShapes(
        boolean=_flags_of_type(vocabularies, "bool") | set(_ARGPARSE_FLAGS.values()),
        many_valued=(_flags_of_type(vocabularies, "list") | _MANY_WORDS) - _ONE_WORD_LISTS,
        short=_ARGPARSE_FLAGS | short,
    )


def _flags_of_type(vocabularies: Iterable[Vocabulary], kind: str) -> frozenset[str]:
    return frozenset(
        name
        for vocabulary in vocabularies
        for name, key in vocabulary.keys.items()
        if key.type == kind and "flags" in key.uses
    )
