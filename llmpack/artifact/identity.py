"""The build id: one hash that names everything an artifact consists of."""

from __future__ import annotations

import msgspec

from llmpack.artifact.hashing import hash_bytes
from llmpack.artifact.manifest import Manifest

_LEFT_OUT = ("build_id", "measured")


def compute_build_id(manifest: Manifest) -> str:
    """Hex sha256 over the canonical JSON (sorted keys, no spaces) of `manifest` without `build_id` and `measured`.

    The manifest lists every file's hash, so two artifacts with one build id hold the same bytes.
    """
    facts = msgspec.to_builtins(manifest)
    for key in _LEFT_OUT:
        del facts[key]
    return hash_bytes(msgspec.json.encode(facts, order="sorted"))
