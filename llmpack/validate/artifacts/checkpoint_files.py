"""Defects of the Hugging Face files that every compiler copies into its artifact."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmpack.artifact.integrity import is_lfs_pointer, list_entries
from llmpack.errors import ArtifactError, LlmpackError
from llmpack.validate.artifacts.json_facts import ids_at, read_object, read_object_if_there
from llmpack.validate.facts import ArtifactProblem

_LFS_MAX_BYTES = 1024
_TEMPLATE_FILES = ("chat_template*", "tokenizer_config.json")
_PROBE = ({"role": "user", "content": "hello"},)


def find_file_problems(root: Path) -> Iterator[ArtifactProblem]:
    """Files that are empty or hold Git LFS pointer text. What is missing only the compiler's own list could tell."""
    for path, status in sorted(list_entries(root).items()):
        message = _find_shape_problem(root / path, status)
        if message:
            yield ArtifactProblem("files", f"{path} {message}", path)


def _find_shape_problem(file: Path, status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode) or file.name.startswith("."):
        return None
    if status.st_size == 0:
        return "is empty"
    if status.st_size < _LFS_MAX_BYTES and is_lfs_pointer(file):
        return "is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    return None


def find_token_problems(root: Path, vocab_size: int | None) -> Iterator[ArtifactProblem]:
    """Where tokenizer, special ids and chat template do not go with the vocabulary."""
    try:
        yield from _find_vocabulary_problems(root, vocab_size)
        yield from _find_eos_problems(root, vocab_size)
    except ArtifactError as error:
        yield ArtifactProblem("tokenizer", error.what, error.where or "")
    yield from _find_template_problems(root)


def _find_vocabulary_problems(root: Path, vocab_size: int | None) -> Iterator[ArtifactProblem]:
    file = root / "tokenizer.json"
    if vocab_size is None or not file.is_file() or file.stat().st_size == 0:
        return
    highest = max(_token_ids(read_object(file)), default=-1)
    if highest >= vocab_size:
        yield ArtifactProblem(
            "tokenizer",
            "the tokenizer gives ids that the model has no row for",
            "tokenizer.json",
            given=f"highest id {highest}",
            needed=f"below vocab_size {vocab_size}",
        )


def _token_ids(tokenizer: dict[str, Any]) -> Iterator[int]:
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from (value for value in vocabulary.values() if isinstance(value, int))
    elif isinstance(vocabulary, list):
        yield len(vocabulary) - 1
    for token in tokenizer.get("added_tokens") or ():
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            yield token["id"]


def _find_eos_problems(root: Path, vocab_size: int | None) -> Iterator[ArtifactProblem]:
    names = ("generation_config.json", "config.json")
    configs = {name: config for name in names if (config := read_object_if_there(root / name))}
    if configs and not any(ids_at(config, "eos_token_id") for config in configs.values()):
        yield ArtifactProblem("tokenizer", "no end-of-text token: nothing stops but the length", next(iter(configs)))
    for name, config in configs.items():
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            bad = [token for token in ids_at(config, key) or () if vocab_size is not None and token >= vocab_size]
            if bad:
                yield ArtifactProblem(
                    "tokenizer", f"{key} is outside the vocabulary", name, str(bad[0]), f"below {vocab_size}"
                )


def _find_template_problems(root: Path) -> Iterator[ArtifactProblem]:
    """The template is rendered once, in the sandbox that the server renders it in."""
    if not any(any(root.glob(pattern)) for pattern in _TEMPLATE_FILES):
        return

    from llmpack.runtime.chat_template import ChatTemplate

    try:
        template = ChatTemplate.from_directory(root)
        if template.sources:
            template.render(_PROBE, add_generation_prompt=True)
    except (LlmpackError, OSError, ValueError) as error:
        reason = error.what if isinstance(error, LlmpackError) else str(error)
        yield ArtifactProblem("tokenizer", f"the chat template does not render: {reason}", "chat_template.jinja")
