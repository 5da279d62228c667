"""What lies at the paths that configs name, looked up once before the rules run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from llmpack.artifact.integrity import Verify
from llmpack.errors import LlmpackError
from llmpack.validate.artifacts.detect import is_artifact, read_facts
from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.model import ServingConfig
from llmpack.validate.rules.rule import PathState
from llmpack.validate.rules.values import as_text, find_setting

_ARTIFACT_SETTINGS = ("compiled_model_dir", "model")
_PATH_SETTINGS = (*_ARTIFACT_SETTINGS, "tokenizer")


@dataclass(slots=True)
class ArtifactReader:
    """Reads each artifact once, however many configs name it.

    Attributes:
        verify: Whether files are hashed.
    """

    verify: Verify
    _found: dict[str, ArtifactFacts | LlmpackError]

    def __init__(self, verify: Verify = "full") -> None:
        self.verify = verify
        self._found = {}

    def read(self, path: Path) -> ArtifactFacts:
        """The facts of the artifact at `path`.

        Raises:
            LlmpackError: There is none, or it cannot be read; the same error each time.
        """
        key = str(path.resolve())
        if key not in self._found:
            try:
                self._found[key] = read_facts(path, self.verify)
            except LlmpackError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, LlmpackError):
            raise found
        return found

    def find(self, path: Path) -> ArtifactFacts | None:
        """As `read`, but None when there is nothing that can be read."""
        try:
            return self.read(path)
        except LlmpackError:
            return None


def look_up_paths(config: ServingConfig, given: ArtifactFacts | None, reader: ArtifactReader) -> dict[str, PathState]:
    """What is at each path that `config` names, by the path as written."""
    if config.is_containerised:
        return {}
    return {text: _look_up(config, text, given, reader) for text in dict.fromkeys(_path_texts(config))}


def _path_texts(config: ServingConfig) -> Iterator[str]:
    for name in _PATH_SETTINGS:
        setting = find_setting(config, name)
        if setting is not None and setting.is_known and (text := as_text(setting)) is not None:
            yield text


def _look_up(config: ServingConfig, text: str, given: ArtifactFacts | None, reader: ArtifactReader) -> PathState:
    path = _resolve(config, text)
    if path is None:
        return PathState(None)
    if not is_artifact(path):
        return PathState(str(path))
    try:
        found = reader.read(path)
    except LlmpackError as error:
        return PathState(str(path), is_artifact=True, problem=str(error))
    is_same = None if given is None else _describe_same(found, given)
    return PathState(str(path), is_artifact=True, is_the_artifact=is_same)


def _describe_same(a: ArtifactFacts, b: ArtifactFacts) -> bool:
    """Whether two copies tell the same; the place where they lie does not count."""
    return replace(a, path="", problems=()) == replace(b, path="", problems=())


def _resolve(config: ServingConfig, text: str) -> Path | None:
    """The path that exists: taken from the working directory, then from where the file lies."""
    try:
        named = Path(text).expanduser()
        places = [Path.cwd(), *([Path(config.path).absolute().parent] if config.path is not None else [])]
        for place in places:
            candidate = place / named
            if candidate.exists():
                return candidate
    except (OSError, RuntimeError, ValueError):
        return None
    return None


def find_own_artifact(
    config: ServingConfig, paths: dict[str, PathState], reader: ArtifactReader
) -> ArtifactFacts | None:
    """The artifact that the config itself names, or that is its model's version directory, when it lies here."""
    for name in _ARTIFACT_SETTINGS:
        setting = find_setting(config, name)
        text = None if setting is None else as_text(setting)
        state = paths.get(text) if text is not None else None
        if state is not None and state.resolved is not None and state.is_artifact:
            return reader.find(Path(state.resolved))
    versions = [] if config.triton is None else [Path(config.triton.directory, v) for v in config.triton.version_dirs]
    return next((reader.find(path) for path in versions if is_artifact(path)), None)
