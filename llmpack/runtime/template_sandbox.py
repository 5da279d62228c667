"""The Jinja environment that chat templates are written for, with a limit on their time.

Source: transformers 5 `chat_template_utils.py` (settings, extensions, filters and globals). Python cannot stop a thread
from outside, so a template looks at the clock itself: at every turn of a loop and at every call.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_deadline_s: ContextVar[float] = ContextVar("_deadline_s", default=math.inf)


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Templates that run in the block raise TemplateRuntimeError after `limit_s` seconds of it."""
    token = _deadline_s.set(time.monotonic() + limit_s)
    try:
        yield
    finally:
        _deadline_s.reset(token)


def _check_time() -> None:
    if time.monotonic() > _deadline_s.get():
        raise jinja2.TemplateRuntimeError("it took too long")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, set up as transformers sets it up."""

    check_time = staticmethod(_check_time)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function for a template, if there is time left."""
        _check_time()
        return super().call(context, function, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            look = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(look, lineno=loop.lineno))
        return tree


class _GenerationTag(Extension):
    """`{% generation %}` marks assistant text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that Jinja prescribes

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body's nodes."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    known = {name: options[name] for name in ("separators", "sort_keys") if name in options}
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **known)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
