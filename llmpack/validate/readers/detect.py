"""What kind of file a path is, by its name and, where that does not tell, by its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from llmpack.validate.readers.python_kwargs import ENGINE_CALLS
from llmpack.validate.readers.server_command import MENTIONS_SERVER

FileKind = Literal["model.json", "pbtxt", "dockerfile", "yaml", "shell", "env", "python", "systemd"]

_ENGINE_CALL = re.compile(rf"\b(?:{'|'.join(sorted(ENGINE_CALLS))})\s*\(")
_DOCKERFILE = re.compile(r"(?:.*\.)?(?:dockerfile|containerfile)(?:\..*)?", re.IGNORECASE)
_ENV = re.compile(r"(?:.+)?\.env(?:\..+)?")
_ENGINE_JSON = re.compile(r"model\.json|.*engine_args.*\.json", re.IGNORECASE)
_SUFFIXES: dict[str, FileKind] = {
    ".yaml": "yaml", ".yml": "yaml", ".sh": "shell", ".bash": "shell", ".py": "python", ".service": "systemd",
}  # fmt: skip
_GIVEN_SUFFIXES: dict[str, FileKind] = {".json": "model.json", ".pbtxt": "pbtxt", ".prototxt": "pbtxt"}
_LOOKS: tuple[tuple[FileKind, re.Pattern[str]], ...] = (
    ("model.json", re.compile(r"\s*\{")),
    ("shell", re.compile(r"#!.*sh\b")),
    ("python", re.compile(r"#!.*python|(?:.*\n)*?(?:from|import) \w+")),
    ("systemd", re.compile(r"(?:.*\n)*?\[Service\]")),
    ("dockerfile", re.compile(r"(?:[ \t]*(?:#.*)?\n|ARG .*\n)*FROM\s", re.IGNORECASE)),
    ("yaml", re.compile(r"(?:.*\n)*?(?:apiVersion|services):")),
    ("env", re.compile(r"(?:[ \t]*(?:#.*)?\n)*(?:export )?[A-Z_][A-Z0-9_]*=[^\n]*(?:\n|\Z)(?![ \t]*(?:vllm|python))")),
)
# Names that mean a serving config wherever they lie; all others only if their text speaks of a server.
_CERTAIN: frozenset[FileKind] = frozenset({"model.json", "pbtxt"})


def kind_by_name(path: Path, *, is_given: bool) -> FileKind | None:
    """The kind that the name says.

    Args:
        path: The file.
        is_given: Whether the user named the file; then any JSON or protobuf text is taken for a config.
    """
    name = path.name
    if name == "config.pbtxt":
        return "pbtxt"
    if _ENGINE_JSON.fullmatch(name):
        return "model.json"
    if _DOCKERFILE.fullmatch(name):
        return "dockerfile"
    if _ENV.fullmatch(name):
        return "env"
    kind = _SUFFIXES.get(path.suffix.lower())
    return kind or (_GIVEN_SUFFIXES.get(path.suffix.lower()) if is_given else None)


def kind_by_text(text: str) -> FileKind | None:
    """The kind that the text looks like."""
    for kind, pattern in _LOOKS:
        if pattern.match(text[:100_000]):
            return kind
    return "shell" if MENTIONS_SERVER.search(text) else None


def is_certain(kind: FileKind) -> bool:
    """Whether files of the kind are serving configs whatever they hold."""
    return kind in _CERTAIN


def may_hold_config(kind: FileKind, text: str) -> bool:
    """Whether the text of a file found below a directory is worth reading: it speaks of a server."""
    if kind == "python":
        return bool(_ENGINE_CALL.search(text))
    if kind == "env":
        return bool(re.search(r"(?im)^[ \t]*(?:export )?(?:VLLM|LLMPACK|RBLN|HF|MAX|MODEL|BLOCK|TENSOR)\w*=", text))
    return bool(MENTIONS_SERVER.search(text)) or (kind == "yaml" and "max" in text and "model" in text)
