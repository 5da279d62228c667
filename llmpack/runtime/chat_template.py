"""Renders a conversation to the text a model was trained on, with the checkpoint's own Jinja template.

Source: transformers 5 `chat_template_utils.py` (variables, what continue_final_message does) and
`tokenization_utils_base.py` (where templates are stored, that "tool_use" is taken when there are tools). A template
comes from a model's publisher: it runs in a sandbox, and its output and its time are capped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes

from llmpack.errors import RequestError
from llmpack.runtime.chat_messages import normalise_messages
from llmpack.runtime.template_sandbox import TemplateSandbox, time_limit
from llmpack.runtime.tokenizer import named_tokens_of, read_json_object, read_tokenizer_config

MAX_OUTPUT_CHARACTERS = 8_000_000
TIME_LIMIT_S = 10.0
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message"})
# Follows the text to be continued; a space at its end shows whether the template trims the message.
_MARK = "<<continue from here>> "

Message = Mapping[str, Any]


class ChatTemplate:
    """A model's chat templates by name; "default" is the usual one.

    Args:
        sources: Template text by name; empty when the model has none.
        variables: What every template sees, such as bos_token.
        time_limit_s: How long one conversation may take.
    """

    def __init__(
        self, sources: Mapping[str, str], variables: Mapping[str, str], time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        self.sources = dict(sources)
        self._time_limit_s = time_limit_s
        self._variables = dict(variables)
        self._environment = TemplateSandbox()
        self._compiled: dict[str, tuple[jinja2.Template, bool]] = {}

    @classmethod
    def from_directory(cls, path: Path) -> ChatTemplate:
        """Reads chat_template.jinja, chat_templates/*.jinja, chat_template.json or tokenizer_config.json.

        Raises:
            ArtifactError: One of the JSON files is not a JSON object.
        """
        config = read_tokenizer_config(path)
        return cls(_read_sources(path, config), named_tokens_of(config))

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text, special tokens spelled out: encode it with add_special_tokens=False.

        Args:
            messages: OpenAI messages. Content in parts becomes one string unless the template handles parts.
            add_generation_prompt: End with the opening of an assistant message.
            continue_final_message: End inside the last message, which must be the assistant's.
            tools: OpenAI tool definitions.
            kwargs: Further variables of the template (`chat_template_kwargs`).

        Raises:
            RequestError: There is no template, it failed (with its own message) or took too long, or messages it
                cannot take.
        """
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
            )
        reserved = sorted(_RESERVED & set(kwargs or {}))
        if reserved:
            raise RequestError("chat_template_kwargs has a reserved name", param="chat_template_kwargs", given=reserved)
        template, takes_parts = self._template(self._select(tools))
        conversation = normalise_messages(messages, keep_parts=takes_parts)
        if continue_final_message:
            _mark_end(conversation)
        variables = {**self._variables, **(kwargs or {}), "messages": conversation, "tools": tools and list(tools)}
        with time_limit(self._time_limit_s):
            text = _run(template, {**variables, "add_generation_prompt": add_generation_prompt})
        return _cut_at_mark(text) if continue_final_message else text

    def _select(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        name = "tool_use" if tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            raise RequestError(
                "this model has no chat template",
                param="messages",
                code="chat_template_missing",
                next_step="Send the prompt to the completions route instead.",
            )
        return name

    def _template(self, name: str) -> tuple[jinja2.Template, bool]:
        """The compiled template and whether it handles content in parts."""
        if name not in self._compiled:
            try:
                tree = self._environment.parse(self.sources[name])
                self._compiled[name] = self._environment.from_string(tree), _loops_over_content(tree)
            except jinja2.TemplateError as error:
                raise _template_failed(error) from error
        return self._compiled[name]


def _read_sources(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Template text by name; files of their own come before what tokenizer_config.json says."""
    found = {file.stem: file.read_text(encoding="utf-8") for file in sorted(path.glob("chat_templates/*.jinja"))}
    single = path / "chat_template.jinja"
    if single.is_file():
        found["default"] = single.read_text(encoding="utf-8")
    if found:
        return found
    legacy = read_json_object(path / "chat_template.json")
    declared = config.get("chat_template") or legacy.get("chat_template")
    if isinstance(declared, list):
        return {str(entry["name"]): str(entry["template"]) for entry in declared}
    return {} if declared is None else {"default": str(declared)}


def _run(template: jinja2.Template, variables: dict[str, Any]) -> str:
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(variables):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_OUTPUT_CHARACTERS:
                raise RequestError("the rendered chat is too long", param="messages", code="context_length_exceeded")
    except RequestError:
        raise
    except Exception as error:  # a template is foreign code and may raise anything
        raise _template_failed(error) from error
    return "".join(pieces)


def _template_failed(error: Exception) -> RequestError:
    return RequestError(f"the chat template failed: {error}", param="messages", code="chat_template_error")


def _mark_end(conversation: list[dict[str, Any]]) -> None:
    """Appends the mark to the last message's text."""
    last = conversation[-1]
    content = last.get("content")
    if last.get("role") != "assistant" or not content:
        raise RequestError(
            "continue_final_message needs a final assistant message with text", param="continue_final_message"
        )
    if isinstance(content, str):
        last["content"] = content + _MARK
    else:
        content[-1]["text"] += _MARK


def _cut_at_mark(text: str) -> str:
    """The text before the mark, without the spaces that the template would have trimmed off the message."""
    where = text.rfind(_MARK.rstrip())
    if where < 0:
        raise RequestError("the chat template drops the message to be continued", param="continue_final_message")
    return text[:where] if text.startswith(_MARK, where) else text[:where].rstrip()


def _loops_over_content(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content, and so takes a list of parts."""
    assigned = tree.find_all(nodes.Assign)
    aliases = {node.target.name for node in assigned if isinstance(node.target, nodes.Name) and _is_content(node.node)}
    loops = [_unfiltered(node.iter) for node in tree.find_all(nodes.For)]
    return any(_is_content(value) or (isinstance(value, nodes.Name) and value.name in aliases) for value in loops)


def _unfiltered(node: nodes.Node | None) -> nodes.Node | None:
    while isinstance(node, nodes.Filter):
        node = node.node
    return node


def _is_content(node: nodes.Node | None) -> bool:
    node = _unfiltered(node)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Getattr) and node.attr == "content"
