"""Which arguments and flags each release of an engine knows.

Source: the data files beside this module, written by `scripts/build_engine_vocabulary.py` from the releases that they
name. Not every release was read: a removal is dated to the first release read that lacks the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal

from packaging.version import InvalidVersion, Version

ValueType = Literal["int", "float", "bool", "str", "list", "object", "any"]
Use = Literal["arguments", "flags"]
Ranges = tuple[tuple[int, int], ...]

ENGINES = ("vllm", "vllm-rbln", "llmpack")

# Source: each wheel's Requires-Dist. From 0.8 on vllm-rbln is a plugin and takes the arguments of this vLLM.
_PLUGIN_VLLM = {"0.8": "0.9.1", "0.9.4": "0.10.2", "0.10": "0.18.0", "0.11": "0.24.0", "0.12": "0.30.0"}
_LAST_FORK = Version("0.7.4")
_SIMILARITY = 0.75


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One argument: its type and the releases that know it, as indexes into `Vocabulary.releases`."""

    name: str
    type: ValueType
    uses: Mapping[Use, Ranges]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All keys of one engine.

    Attributes:
        engine: `vllm`, `vllm-rbln` or `llmpack`.
        releases: Versions that were read, ascending.
        short_flags: Canonical names by short flag.
        keys: By canonical name.
    """

    engine: str
    releases: tuple[str, ...]
    short_flags: Mapping[str, str]
    keys: Mapping[str, KnownKey]

    def knows(self, name: str, use: Use, release: str | None) -> bool:
        """Whether `name` may be used; without a release, whether the latest one read takes it."""
        return any(first <= self._index(release) <= last for first, last in self._ranges(name, use))

    def removed_in(self, name: str, use: Use, release: str | None) -> str | None:
        """The first release read that lacks `name`, which earlier ones took; None when there is no such release."""
        ended = [last for _, last in self._ranges(name, use) if last < self._index(release)]
        return self.releases[max(ended) + 1] if ended else None

    def last_with(self, name: str, use: Use) -> str | None:
        """The latest release read that takes `name`, or None."""
        return self.releases[max(last for _, last in ranges)] if (ranges := self._ranges(name, use)) else None

    def first_with(self, name: str, use: Use) -> str | None:
        """The earliest release read that takes `name`, or None."""
        return self.releases[min(first for first, _ in ranges)] if (ranges := self._ranges(name, use)) else None

    def nearest(self, name: str, use: Use, release: str | None) -> str | None:
        """The most similar key that may be used, if any is similar."""
        known = [key for key in self.keys if self.knows(key, use, release)]
        found = get_close_matches(name, known, n=1, cutoff=_SIMILARITY)
        return found[0] if found else None

    def type_of(self, name: str) -> ValueType:
        """What kind of JSON value `name` takes; `any` for unknown names."""
        return self.keys[name].type if name in self.keys else "any"

    def _ranges(self, name: str, use: Use) -> Ranges:
        return self.keys[name].uses.get(use, ()) if name in self.keys else ()

    def _index(self, release: str | None) -> int:
        """The last release read that is not later than `release`."""
        if release is None:
            return len(self.releases) - 1
        earlier = [index for index, known in enumerate(self.releases) if Version(known) <= Version(release)]
        return max(earlier, default=0)


def similarity(a: str, b: str) -> float:
    """From 0 to 1, how much two names have in common."""
    return SequenceMatcher(None, a, b).ratio()


def find_vocabulary(target: str, release: str | None) -> tuple[Vocabulary, str | None] | None:
    """The vocabulary of a target and the release to look up in it; None for targets that take any key.

    Args:
        target: A `ServingConfig.target`.
        release: The engine's version, or None when unknown. Without one vllm-rbln means its releases up to 0.7.4:
            only they know the arguments by which the target is told.
    """
    if target == "vllm-rbln" and release is not None and (vllm := _plugin_vllm(release)) is not None:
        return read_vocabulary("vllm"), vllm
    if target in ENGINES:
        return read_vocabulary(target), release if _is_version(release) else None
    return None


def _plugin_vllm(release: str) -> str | None:
    if not _is_version(release) or Version(release) <= _LAST_FORK:
        return None
    earlier = [vllm for since, vllm in _PLUGIN_VLLM.items() if Version(since) <= Version(release)]
    return earlier[-1] if earlier else None


def _is_version(text: str | None) -> bool:
    try:
        Version(text or "")
    except InvalidVersion:
        return False
    return True


@cache
def read_vocabulary(engine: str) -> Vocabulary:
    """The vocabulary in the data file of `engine`."""
    document = json.loads(files(__package__).joinpath(f"{engine}.json").read_text(encoding="utf-8"))
    keys = {name: _read_key(name, entry) for name, entry in document["keys"].items()}
    return Vocabulary(document["engine"], tuple(document["releases"]), document["short_flags"], keys)


def _read_key(name: str, entry: Mapping[str, object]) -> KnownKey:
    uses: dict[Use, Ranges] = {}
    use: Use
    for use in ("arguments", "flags"):
        ranges = entry.get(use)
        if isinstance(ranges, list):
            uses[use] = tuple((first, last) for first, last in ranges)
    return KnownKey(name, entry["type"], uses)  # type: ignore[arg-type]
