"""Engine arguments in Python: calls of `AsyncEngineArgs` and its like in a file, or plain keyword arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from llmpack.validate.model import JsonValue, Location, ServingConfig, Setting, Span, Target
from llmpack.validate.readers.engine_targets import resolve_engine_target
from llmpack.validate.readers.python_secrets import find_secrets
from llmpack.validate.readers.python_text import PythonText
from llmpack.validate.readers.source_text import SourceText

ENGINE_CALLS = frozenset({"AsyncEngineArgs", "EngineArgs", "LLM"})
# Other libraries call their own classes LLM.
_ENGINE_PACKAGES = frozenset({"vllm", "vllm_rbln", "llmpack"})


def read_python_file(source: SourceText) -> list[ServingConfig]:
    """One config per call of `ENGINE_CALLS`; none for a call whose arguments all come from elsewhere.

    Raises:
        UnreadableConfig: Not readable as Python.
    """
    python = PythonText(source)
    secrets = tuple(find_secrets(python))
    configs = []
    for name, call in python.calls():
        settings = tuple(_settings(python, call)) if name in ENGINE_CALLS and _is_of_an_engine(python, call) else ()
        if settings:
            location = python.location(call, name)
            target = _call_target(python, settings)
            configs.append(ServingConfig("kwargs", "python", source.path, target, location, settings, secrets=secrets))
            secrets = ()
    return configs


def read_kwargs(kwargs: Mapping[str, JsonValue]) -> ServingConfig:
    """The config that the keyword arguments are; its values have no file and cannot be fixed."""
    settings = tuple(Setting(name, value, name, Location(None, pointer=name)) for name, value in kwargs.items())
    return ServingConfig("kwargs", "api", None, resolve_engine_target(settings, "llmpack"), Location(None), settings)


def _is_of_an_engine(python: PythonText, call: ast.Call) -> bool:
    """Whether what is called comes from an engine's package, as far as the file's imports tell."""
    package = python.package_of(call.func)
    return package is None or package in _ENGINE_PACKAGES


def _call_target(python: PythonText, settings: tuple[Setting, ...]) -> Target:
    modules = {node.module or "" for node in python.nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in python.nodes if isinstance(node, ast.Import) for alias in node.names}
    is_ours = any(module.split(".")[0] == "llmpack" for module in modules)
    return resolve_engine_target(settings, "llmpack" if is_ours else "vllm")


def _settings(python: PythonText, call: ast.Call) -> Iterator[Setting]:
    if call.args and not isinstance(call.args[0], ast.Starred):
        value, is_known = python.value(call.args[0])
        place = python.location(call.args[0], "model")
        yield Setting("model", value, "model", place, _literal_span(python, call.args[0]), is_known=is_known)
    for index, keyword in enumerate(call.keywords):
        if keyword.arg is None:
            yield from _unpacked(python, keyword.value)
        else:
            yield _setting(python, call, index)


def _setting(python: PythonText, call: ast.Call, index: int) -> Setting:
    keyword = call.keywords[index]
    name = str(keyword.arg)
    value, is_known = python.value(keyword.value)
    start = python.start(keyword)
    return Setting(
        name,
        value,
        name,
        python.location(keyword.value, name),
        span=_literal_span(python, keyword.value),
        key_span=python.source.span(start, start + len(name)),
        entry_span=python.source.span(*_cut(python, call, index)),
        is_known=is_known,
    )


def _literal_span(python: PythonText, node: ast.expr) -> Span | None:
    """Only a literal can be replaced: a name may be used elsewhere too."""
    return None if isinstance(node, ast.Name) else python.span(node)


def _cut(python: PythonText, call: ast.Call, index: int) -> tuple[int, int]:
    """The argument with the comma behind it, the last one with the comma before it."""
    start, end = python.start(call.keywords[index]), python.end(call.keywords[index].value)
    if index + 1 < len(call.keywords):
        return start, python.start(call.keywords[index + 1])
    before = [*call.args, *(item.value for item in call.keywords[max(index - 1, 0) : index])]
    return (python.end(before[-1]), end) if before else (start, end)


def _unpacked(python: PythonText, node: ast.expr) -> Iterator[Setting]:
    """Settings of `**{...}`; what else is unpacked cannot be known."""
    if not isinstance(node, ast.Dict):
        return
    for key, value_node in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            value, is_known = python.value(value_node)
            place = python.location(value_node, key.value)
            span = _literal_span(python, value_node)
            yield Setting(key.value, value, key.value, place, span, python.span(key), is_known=is_known)
