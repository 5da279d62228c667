"""Python files by their syntax tree: constants, places and literal values. Nothing is imported or run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from llmpack.validate.model import JsonValue, Location, Span
from llmpack.validate.readers.source_text import SourceText

MAX_NODES = 200_000


class PythonText:
    """One parsed Python file.

    Attributes:
        nodes: All nodes, outer before inner.

    Raises:
        UnreadableConfig: Not Python of this interpreter's grammar, or nested too deeply.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.nodes = _parse(source)
        self._constants = dict(_constants(self.nodes))
        self._packages = dict(_imported(self.nodes))

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call with the last part of the called name, in order: `login` for `huggingface_hub.login(...)`."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            if name := last_name(node.func):
                yield name, node

    def package_of(self, node: ast.expr) -> str | None:
        """The top package that `name` or `name.attribute` was imported from; None when it was not imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return self._packages.get(node.id) if isinstance(node, ast.Name) else None

    def location(self, node: ast.expr | ast.stmt | ast.keyword, pointer: str = "") -> Location:
        """Where `node` starts."""
        return self.source.location(self.start(node), pointer)

    def span(self, node: ast.expr | ast.keyword) -> Span | None:
        """The bytes of `node`."""
        return self.source.span(self.start(node), self.end(node))

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """The offset of the node's first character."""
        return self.source.character(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """The offset behind the node's last character."""
        return self.source.character(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def value(self, node: ast.expr) -> tuple[JsonValue, bool]:
        """The value of a literal or of a name that is bound once, to a literal; and whether it is known."""
        if isinstance(node, ast.Name):
            bound = self._constants.get(node.id)
            return literal(bound) if bound is not None else (None, False)
        return literal(node)


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def literal(node: ast.expr) -> tuple[JsonValue, bool]:
    """The value of a literal that JSON can hold, and True; else None and False."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None, False
    return _as_json(value)


def _as_json(value: object) -> tuple[JsonValue, bool]:
    if value is None or isinstance(value, bool | int | float | str):
        return value, True
    if isinstance(value, list | tuple):
        items = [_as_json(item) for item in value]
        return [item for item, _ in items], all(known for _, known in items)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        members = {key: _as_json(item) for key, item in value.items()}
        return {key: item for key, (item, _) in members.items()}, all(known for _, known in members.values())
    return None, False


def _parse(source: SourceText) -> list[ast.AST]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's own doubtful escapes are not ours to warn about
            tree = ast.parse(source.text)
    except SyntaxError as error:
        at = source.character(error.lineno or 1, 0)
        raise source.failure(f"not Python: {error.msg}", at) from None
    except (ValueError, MemoryError, RecursionError):
        raise source.failure("not Python that can be read: nested too deeply", 0) from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise source.failure(f"more than {MAX_NODES} syntax nodes", 0)
    return nodes


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that absolute imports bind, with the top package of each."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, node.module.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                yield alias.asname or package, package


def _constants(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names of the file that are bound exactly once, by a plain assignment."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            bound.setdefault(node.id, []).append(None)
        elif isinstance(node, ast.arg):
            bound.setdefault(node.arg, []).append(None)
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and len(bound[target.id]) == 1:
            yield target.id, value
