"""Reads every serving config below some paths; a file that cannot be read hides no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import Location, ReadFailure, ReadResult, ServingConfig
from llmpack.validate.readers.detect import FileKind, is_certain, kind_by_name, kind_by_text, may_hold_config
from llmpack.validate.readers.dockerfile import read_dockerfile
from llmpack.validate.readers.env_file import read_env_file
from llmpack.validate.readers.json_config import read_model_json
from llmpack.validate.readers.python_kwargs import read_python_file
from llmpack.validate.readers.repository import join_repositories
from llmpack.validate.readers.shell_script import read_shell_script
from llmpack.validate.readers.source_text import MAX_FILE_BYTES, SourceText, read_source
from llmpack.validate.readers.systemd import read_systemd_unit
from llmpack.validate.readers.triton_config import read_triton_config, resolve_triton_target
from llmpack.validate.readers.walk import FoundFile, Unwalkable, walk
from llmpack.validate.readers.yaml_config import read_yaml
from llmpack.validate.vocabulary.engine_vocabulary import ENGINES, read_vocabulary

_READERS: dict[FileKind, Callable[[SourceText], list[ServingConfig]]] = {
    "dockerfile": read_dockerfile,
    "env": lambda source: [read_env_file(source)],
    "model.json": lambda source: [read_model_json(source)],
    "python": read_python_file,
    "shell": read_shell_script,
    "systemd": read_systemd_unit,
    "yaml": read_yaml,
}


def read_paths(paths: Sequence[str | Path], drafts: Mapping[Path, bytes] | None = None) -> ReadResult:
    """All serving configs in the files and below the directories `paths`, in order, each file once.

    Nothing that is read is run. Beside these files only what belongs to them is looked at: the env files of a compose
    file, the model and the version directories of a Triton repository.

    Args:
        paths: Files and directories.
        drafts: As for `read_source`.
    """
    configs: list[ServingConfig] = []
    failures: list[ReadFailure] = []
    seen: set[Path] = set()
    for path in paths:
        num_before = len(configs) + len(failures)
        for found in walk(Path(path)):
            if isinstance(found, Unwalkable):
                failures.append(ReadFailure(str(found.path), found.message))
            elif found.path not in seen:
                read, failed = read_file(found, drafts)
                configs += read
                failures += failed
                if read or failed:
                    seen.add(found.path)
        if num_before == len(configs) + len(failures) and Path(path).is_dir():
            failures.append(ReadFailure(str(path), "no serving config lies below this directory"))
    return ReadResult(tuple(join_repositories(configs)), tuple(failures))


def read_file(
    found: FoundFile, drafts: Mapping[Path, bytes] | None = None
) -> tuple[list[ServingConfig], list[ReadFailure]]:
    """The configs of one file; a file found below a directory may silently hold none."""
    kind = kind_by_name(found.path, is_given=found.is_given)
    if kind is None and not found.is_given:
        return [], []
    try:
        source = read_source(found.path, drafts)
    except UnreadableConfig as error:
        is_wanted = found.is_given or (kind and is_certain(kind)) or _may_be_wanted(found.path, kind)
        return [], [ReadFailure(str(found.path), str(error))] if is_wanted else []
    kind = kind or kind_by_text(source.text)
    if not found.is_given and kind and not is_certain(kind) and not may_hold_config(kind, source.text):
        return [], []
    return _read_text(found, kind, source)


def _read_text(
    found: FoundFile, kind: FileKind | None, source: SourceText
) -> tuple[list[ServingConfig], list[ReadFailure]]:
    configs: list[ServingConfig] = []
    failures: list[ReadFailure] = []
    try:
        if kind == "pbtxt":
            configs, failures = _read_pbtxt(found, source)
        elif kind is not None:
            configs = _READERS[kind](source)
            if kind == "model.json" and not found.is_given and not _is_for_an_engine(configs[0]):
                configs = []
    except UnreadableConfig as error:
        return [], [ReadFailure(str(found.path), str(error))]
    if not configs and not failures and found.is_given:
        failures = [ReadFailure(str(found.path), "no serving config is in this file")]
    return configs, failures


def _is_for_an_engine(config: ServingConfig) -> bool:
    """Whether a model.json that was come upon holds any key of an engine: other tools have files of that name."""
    names = [setting.name for setting in config.settings]
    keys = [read_vocabulary(engine).keys for engine in ENGINES]
    return not names or any(name in known for name in names for known in keys)


def _read_pbtxt(found: FoundFile, source: SourceText) -> tuple[list[ServingConfig], list[ReadFailure]]:
    read = read_triton_config(source, is_repository=not found.is_given)
    model = read.model if read.model.is_repository else replace(read.model, is_repository=bool(read.model.version_dirs))
    config = ServingConfig(
        kind="config.pbtxt",
        origin="file",
        path=source.path,
        target=resolve_triton_target(model),
        location=Location(source.path, 1, 1),
        triton=model,
        siblings=(model,),
        defects=read.defects,
    )
    return [config], [ReadFailure(*read.model_py_failure)] if read.model_py_failure else []


def _may_be_wanted(path: Path, kind: FileKind | None) -> bool:
    """Whether an unreadable file of an uncertain kind speaks of a server all the same."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("latin-1") if path.is_file() else ""
    except OSError:
        return False
    return kind is not None and may_hold_config(kind, text)
