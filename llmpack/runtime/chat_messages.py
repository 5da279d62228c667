"""Brings OpenAI messages into the form that chat templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmpack.errors import RequestError


def normalise_messages(messages: Sequence[Mapping[str, Any]], *, keep_parts: bool) -> list[dict[str, Any]]:
    """Fresh copies of the messages, safe to change.

    Null fields are dropped (templates test for a key's presence); the text parts of a content list are joined with a
    line feed unless `keep_parts`; the arguments of tool calls become objects.

    Raises:
        RequestError: There is no message, one has content that is not text, or arguments of a tool call are no JSON.
    """
    if not messages:
        raise RequestError("messages must not be empty", param="messages")
    return [_normalise(message, f"messages[{index}]", keep_parts) for index, message in enumerate(messages)]


def _normalise(message: Mapping[str, Any], where: str, keep_parts: bool) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if value is not None}
    content = plain.get("content", "")
    if not isinstance(content, str):
        parts = _text_parts(content, f"{where}.content")
        plain["content"] = parts if keep_parts else "\n".join(part["text"] for part in parts)
    if "tool_calls" in plain:
        plain["tool_calls"] = [_with_object_arguments(call, f"{where}.tool_calls") for call in plain["tool_calls"]]
    return plain


def _text_parts(content: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        raise RequestError("content must be a string or a list of parts", param=where, given=content)
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise RequestError(
                "only text content is supported", param=where, code="unsupported_content", given=kind, allowed="text"
            )
    return [dict(part) for part in content]


def _with_object_arguments(call: Any, where: str) -> Any:
    """OpenAI sends arguments as JSON text; templates expect the object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        raise RequestError(f"tool call arguments are not JSON ({error})", param=where) from error
    except RecursionError as error:
        raise RequestError("tool call arguments are nested too deep", param=where) from error
    return {**call, "function": {**function, "arguments": arguments}}
