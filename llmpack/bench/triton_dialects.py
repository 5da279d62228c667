"""How Triton is asked for greedy completions, whether its model streams or answers at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmpack.bench.http_load import Event, HttpRequest, parse_event


@dataclass(frozen=True, slots=True)
class TritonBatch:
    """`generate_stream` of a model that takes `prompt` and answers once with `generated_text`.

    Attributes:
        model: Its name on the server.
    """

    model: str

    @property
    def path(self) -> str:
        """Where requests go."""
        return f"/v2/models/{self.model}/generate_stream"

    def body(self, request: HttpRequest) -> Mapping[str, Any]:
        """The JSON body of a request; the contract takes text alone."""
        assert isinstance(request.prompt, str)
        return {"prompt": request.prompt, "sampling_parameters": _greedy_sampling(request.max_tokens)}

    def read(self, data: bytes) -> Event | None:
        """The one event."""
        return Event(has_text="generated_text" in parse_event(data))

    def count(self, request: HttpRequest, events: Sequence[Event]) -> int | None:
        """What was asked for: the contract does not count, and end tokens are ignored."""
        return request.max_tokens if any(event.has_text for event in events) else None


@dataclass(frozen=True, slots=True)
class TritonStream:
    """`generate_stream` of a model with the contract of Triton's vLLM backend.

    Attributes:
        model: Its name on the server.
    """

    model: str

    @property
    def path(self) -> str:
        """Where requests go."""
        return f"/v2/models/{self.model}/generate_stream"

    def body(self, request: HttpRequest) -> Mapping[str, Any]:
        """The JSON body of a request; the contract takes text alone."""
        assert isinstance(request.prompt, str)
        return {
            "text_input": request.prompt,
            "stream": True,
            "sampling_parameters": _greedy_sampling(request.max_tokens),
            "return_num_input_tokens": True,
            "return_num_output_tokens": True,
        }

    def read(self, data: bytes) -> Event | None:
        """An event; the stream ends with its connection's message."""
        body = parse_event(data)
        return Event(bool(body.get("text_output")), body.get("num_input_tokens"), body.get("num_output_tokens"))

    def count(self, request: HttpRequest, events: Sequence[Event]) -> int | None:
        """The sum: each response counts its own tokens."""
        counts = [event.num_output_tokens for event in events if event.num_output_tokens is not None]
        return sum(counts) if counts else None


def _greedy_sampling(max_tokens: int) -> str:
    """The `sampling_parameters` of a greedy completion that does not end early."""
    return json.dumps({"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True})
