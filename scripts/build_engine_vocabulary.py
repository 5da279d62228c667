"""Writes `llmpack/validate/vocabulary/ENGINE.json`: which engine arguments and flags each release knows.

    python scripts/build_engine_vocabulary.py vllm UNPACKED llmpack/validate/vocabulary/vllm.json

UNPACKED holds one folder per release, named by its version, with the release's `arg_utils.py`, `cli_args.py`,
`api_server.py` and `serve.py` in any depth, and a file SOURCE that names where they were taken from. The files are
parsed, never run.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from packaging.version import Version

FILES = ("arg_utils.py", "cli_args.py", "api_server.py", "serve.py")
ARGUMENT_CLASSES = ("EngineArgs", "AsyncEngineArgs")


def main(engine: str, sources: Path, target: Path) -> None:
    """Reads every release below `sources` and writes the vocabulary to `target`."""
    folders = sorted((folder for folder in sources.iterdir() if folder.is_dir()), key=lambda item: Version(item.name))
    releases = [read_release(folder) for folder in folders]
    names = sorted({name for _, arguments, flags, _ in releases for name in {**arguments, **flags}})
    keys = {}
    for name in names:
        types = [table[name] for position in (2, 1) for release in releases if name in (table := release[position])]
        entry = {"type": next((kind for kind in reversed(types) if kind != "any"), "any")}
        for label, position in (("arguments", 1), ("flags", 2)):
            ranges = ranges_of([name in release[position] for release in releases])
            if ranges:
                entry[label] = ranges
        keys[name] = entry
    short = {flag: name for _, _, _, short_flags in releases for flag, name in short_flags.items()}
    document = {
        "engine": engine,
        "files": list(FILES),
        "releases": {folder.name: (folder / "SOURCE").read_text().strip() for folder in folders},
        "short_flags": dict(sorted(short.items())),
        "keys": keys,
    }
    target.write_text(render(document), encoding="utf-8")


def render(document: dict[str, object]) -> str:
    """JSON with one key per line, so that a new release is a small difference."""
    keys = document.pop("keys")
    head = json.dumps(document, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in keys.items())
    return f'{head},\n "keys": {{\n{lines}\n }}\n}}\n'


def ranges_of(present: list[bool]) -> list[list[int]]:
    """Runs of True as [first, last] indexes."""
    runs = []
    for value, group in groupby(enumerate(present), key=lambda item: item[1]):
        indexes = [index for index, _ in group]
        if value:
            runs.append([indexes[0], indexes[-1]])
    return runs


def read_release(folder: Path) -> tuple[str, dict[str, str], dict[str, str], dict[str, str]]:
    """Version, arguments with types, flags with types, short flags."""
    arguments: dict[str, str] = {}
    flags: dict[str, str] = {}
    short: dict[str, str] = {}
    for file in sorted(folder.rglob("*.py")):
        if not file.name.endswith(FILES):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in ARGUMENT_CLASSES:
                arguments |= dict(fields_of(node))
            elif isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                flags |= dict(fields_of(node))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                add_flags(node, flags, short)
    for name in flags.keys() & arguments.keys():
        flags[name] = arguments[name]
    return folder.name, arguments, flags, short


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Annotated fields of a dataclass and the kind of JSON value each takes."""
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, kind_of(ast.unparse(field.annotation))


def add_flags(call: ast.Call, flags: dict[str, str], short: dict[str, str]) -> None:
    """Adds the spellings of one `add_argument`."""
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    names = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if "store_true" in keywords.get("action", ""):
        kind = "bool"
    else:
        kind = {"int": "int", "float": "float", "str": "str"}.get(keywords.get("type", ""), "any")
    for name in names:
        flags.setdefault(name, kind)
    for word in words:
        if names and word.startswith("-") and not word.startswith("--"):
            short[word] = names[0]


def kind_of(annotation: str) -> str:
    """`int`, `float`, `bool`, `str`, `list`, `object`; `any` when more than one of them will do."""
    words = annotation.replace("Optional[", "").replace("Union[", "").replace(" ", "")
    kinds = set()
    for part in words.replace("]", "").split("|"):
        for word in part.split(","):
            kinds.add(word.split("[")[0].lower())
    kinds.discard("none")
    if len(kinds) != 1:
        return "any"
    kind = kinds.pop()
    return {"dict": "object"}.get(kind, kind if kind in {"int", "float", "bool", "str", "list"} else "any")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
