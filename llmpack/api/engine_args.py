"""What an engine is started with, under vLLM's names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from llmpack.errors import UsageError

if TYPE_CHECKING:
    from llmpack.validate.model import JsonValue

StrPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class AsyncEngineArgs:
    """Which artifact to serve, and how much of it. Everything is in the artifact, so all but `model` may be left out.

    What is given is compared with the artifact when an engine is made: the four limits as `llmpack validate` compares
    them, the rest for equality, so that a script written for another artifact stops before it serves the wrong thing.

    Attributes:
        model: The artifact's directory; or, beside `compiled_model_dir`, what the artifact was compiled from.
        compiled_model_dir: The artifact's directory.
        tokenizer: The artifact has its own; may only name the same.
        revision: The hub commit that was compiled.
        device: Such as `cpu`; `auto`, and the tutorials' `rbln`, mean the device that the artifact was compiled for.
        dtype: As compiled, or `auto`.
        quantization: As compiled.
        tensor_parallel_size: As compiled.
        max_model_len: Tokens of a request, prompt and output together; at most the compiled max_seq_len, the default.
        max_num_seqs: Sequences that run at once; at most the compiled batch_size, the default.
        max_num_batched_tokens: Room of a step; at least the largest prefill bucket.
        block_size: Tokens of a slot: the compiled max_seq_len, or max_model_len.
        enable_prefix_caching: Beginnings of prompts that stand in a slot already are not computed again; so by default.
        generation_config: `auto`, the default, lets generation_config.json decide what `LLM` samples with when it is
            not told; `vllm` does not.
        seed: Requests without a seed get theirs from a generator with this one, in the order in which they come.

    Raises:
        UsageError: An argument is unknown; the nearest is named.
    """

    model: StrPath
    _: KW_ONLY
    compiled_model_dir: StrPath | None = None
    tokenizer: StrPath | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None
    generation_config: str | None = None
    seed: int | None = None

    def __new__(cls, *_positional: object, **given: object) -> Self:
        """A bare object, once all argument names are known."""
        _check_names(given, [field.name for field in fields(cls)])
        return object.__new__(cls)

    @property
    def artifact_dir(self) -> Path:
        """Where the artifact must lie."""
        return Path(self.model if self.compiled_model_dir is None else self.compiled_model_dir).expanduser()

    def settings(self) -> dict[str, JsonValue]:
        """What was given, by name, paths as text."""
        return dict(self._given())

    def _given(self) -> Iterator[tuple[str, JsonValue]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_names(given: dict[str, object], known: list[str]) -> None:
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    nearest = {name: get_close_matches(name, known, n=1) for name in unknown}
    hints = [f"Did you mean {found[0]} instead of {name}?" for name, found in nearest.items() if found]
    raise UsageError(
        "unknown engine arguments",
        where="AsyncEngineArgs",
        given=", ".join(unknown),
        allowed=", ".join(known),
        next_step=" ".join(hints) or "Leave them out: what they would set is compiled in, or does not exist here.",
    )
