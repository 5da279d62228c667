"""Credentials written out in Python files; their values are never kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from llmpack.validate.model import Secret
from llmpack.validate.readers.python_text import PythonText

SECRET_NAME = re.compile(r"(?:^|_)(?:token|api_?key|secret|password)$", re.IGNORECASE)
SECRET_VALUE = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,})")
# Words that look like credentials by name but are vocabulary of tokenizers.
_TOKENIZER_WORDS = frozenset(f"{word}_token" for word in ("pad", "eos", "bos", "unk", "sep", "cls", "mask"))


def find_secrets(python: PythonText) -> Iterator[Secret]:
    """Literal credentials: in calls, assignments and by their look; each place once."""
    seen: set[ast.expr] = set()
    for what, node in _candidates(python):
        if node not in seen and isinstance(node, ast.Constant) and isinstance(node.value, str):
            seen.add(node)
            yield Secret(what, python.location(node, what), is_empty=not node.value)


def _candidates(python: PythonText) -> Iterator[tuple[str, ast.expr]]:
    for name, call in python.calls():
        if name == "login" and call.args:
            yield "login(token=...)", call.args[0]
        for keyword in call.keywords:
            if keyword.arg and _is_secret_name(keyword.arg):
                yield f"{name}({keyword.arg}=...)", keyword.value
    for node in python.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if _is_secret_name(name := _target_name(target)):
                    yield f"{name} = ...", node.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and SECRET_VALUE.search(node.value):
            yield "a token", node


def _is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and name not in _TOKENIZER_WORDS


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""
