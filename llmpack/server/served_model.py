"""What is served: one model under one or more names, with everything a request needs to be understood."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from llmpack.artifact.manifest import Manifest
from llmpack.errors import ArtifactError, RequestError
from llmpack.runtime.chat_template import ChatTemplate
from llmpack.runtime.resolve import ModelLimits
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.errors import ApiError

DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model as clients see it.

    Attributes:
        names: What `model` may say in a request; the first is the model's own, the others are aliases.
        tokenizer: Text to ids and back.
        limits: Vocabulary and context.
        created: Unix time in seconds, for /v1/models.
        chat_template: None refuses chat.
        chat_template_kwargs: Defaults that a request's chat_template_kwargs are merged over.
        sampling_defaults: Values that stand for absent or null request fields, by name, out of `DEFAULTED`.
        tokenizer_info: The body of /tokenizer_info.
        batch_size: Compiled slots.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    limits: ModelLimits
    created: int = field(default_factory=lambda: int(time.time()))
    chat_template: ChatTemplate | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    tokenizer_info: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 1

    @classmethod
    def from_artifact(
        cls, directory: Path, manifest: Manifest, names: Sequence[str] = (), *, use_generation_config: bool = True
    ) -> Self:
        """Reads an artifact's tokenizer, template and generation defaults.

        Args:
            directory: The artifact.
            manifest: Its manifest, already read and checked.
            names: Served names; the source's name when empty.
            use_generation_config: Let generation_config.json decide the values that a request leaves out.
        """
        has_template = manifest.chat_template_sha256 is not None
        return cls(
            names=tuple(names) or (manifest.source.model,),
            tokenizer=Tokenizer.from_directory(directory),
            limits=ModelLimits(
                vocab_size=manifest.vocab_size,
                max_seq_len=manifest.max_seq_len,
                eos_token_ids=frozenset(manifest.special_tokens.eos_token_ids),
            ),
            chat_template=ChatTemplate.from_directory(directory) if has_template else None,
            sampling_defaults=read_sampling_defaults(directory) if use_generation_config else {},
            tokenizer_info=_read_object(directory / "tokenizer_config.json"),
            batch_size=manifest.batch_size,
        )

    def check_name(self, name: str) -> str:
        """Returns `name` if it is served.

        Raises:
            ApiError: 404, code model_not_found.
        """
        if name in self.names:
            return name
        message = f"The model `{name[:200]}` does not exist; served: {', '.join(self.names)}."
        raise ApiError(404, message, param="model", code="model_not_found")

    def require_chat_template(self) -> ChatTemplate:
        """The template.

        Raises:
            RequestError: The model has none.
        """
        if self.chat_template is None:
            raise RequestError(
                "this model has no chat template", code="chat_template_missing", next_step="Use /v1/completions."
            )
        return self.chat_template


def read_sampling_defaults(directory: Path) -> dict[str, float]:
    """The sampling values that generation_config.json sets; empty without one.

    Source: the fields that vLLM 0.32 takes over (`ModelConfig.get_diff_sampling_param`), less max_new_tokens.
    """
    config = _read_object(directory / "generation_config.json")
    return {name: config[name] for name in DEFAULTED if config.get(name) is not None}


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ArtifactError(f"not a JSON object: {error}", where=str(path)) from error
