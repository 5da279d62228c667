"""What an emitted config.pbtxt tells the runtime, read back from Triton's `initialize` arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from llmpack.errors import UsageError

StreamText = Literal["delta", "cumulative"]

ARTIFACT = "artifact"
STREAM_TEXT = "stream_text"
MAX_WAITING = "max_waiting"
MAX_TOKENS = "max_tokens"
NUM_THREADS = "num_threads"
REPORT_METRICS = "REPORT_CUSTOM_METRICS"
_KNOWN = (ARTIFACT, STREAM_TEXT, MAX_WAITING, MAX_TOKENS, NUM_THREADS, REPORT_METRICS)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The parameters of one model.

    Attributes:
        model_name: Its name in the repository.
        model_version: Its version directory.
        artifact: The artifact's directory.
        stream_text: Whether a streamed response carries the new text, or prompt and text so far.
        max_waiting: Sequences that may queue beyond the slots.
        max_tokens: Output tokens of a request that does not say how many.
        num_threads: Threads that compute; 0 for one per physical core.
        report_metrics: Whether to publish metrics of its own.
    """

    model_name: str
    model_version: str
    artifact: Path
    stream_text: StreamText = "delta"
    max_waiting: int = 256
    max_tokens: int = 16
    num_threads: int = 0
    report_metrics: bool = True

    @classmethod
    def read(cls, args: Mapping[str, str], model_dir: Path) -> Self:
        """The settings in Triton's `initialize` arguments.

        Args:
            args: With `model_config`, JSON, and `model_name` and `model_version`.
            model_dir: The version directory, from which a relative artifact path is taken.

        Raises:
            UsageError: A parameter is missing, unknown or no value of its kind.
        """
        config = json.loads(args["model_config"])
        texts = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}
        for key in texts.keys() - set(_KNOWN):
            raise UsageError("unknown parameter", where="config.pbtxt", given=key, allowed=", ".join(_KNOWN))
        if not texts.get(ARTIFACT):
            raise UsageError(f'the parameter "{ARTIFACT}" is missing', where="config.pbtxt")
        return cls(
            model_name=args["model_name"],
            model_version=args["model_version"],
            artifact=model_dir / texts[ARTIFACT],
            stream_text=_choice(texts, STREAM_TEXT, "delta"),
            max_waiting=_count(texts, MAX_WAITING, 256),
            max_tokens=_count(texts, MAX_TOKENS, 16),
            num_threads=_count(texts, NUM_THREADS, 0),
            report_metrics=_flag(texts, REPORT_METRICS),
        )


def _choice(texts: Mapping[str, str], key: str, default: StreamText) -> StreamText:
    value: Any = texts.get(key, default)
    if value not in get_args(StreamText):
        raise _refusal(key, value, " or ".join(get_args(StreamText)))
    chosen: StreamText = value
    return chosen


def _count(texts: Mapping[str, str], key: str, default: int) -> int:
    text = texts.get(key, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise _refusal(key, text, "0 or more")
    return int(text)


def _flag(texts: Mapping[str, str], key: str) -> bool:
    text = texts.get(key, "true").lower()
    if text not in {"true", "false"}:
        raise _refusal(key, text, "true or false")
    return text == "true"


def _refusal(key: str, given: str, allowed: str) -> UsageError:
    return UsageError(f'the parameter "{key}" cannot be used', where="config.pbtxt", given=given, allowed=allowed)
