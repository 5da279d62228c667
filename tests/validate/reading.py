"""Writes files for reader tests and looks at what was read from them."""

from __future__ import annotations

from pathlib import Path

from llmpack.validate.model import ServingConfig, Setting, Span
from llmpack.validate.readers.read import read_paths


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_one(path: Path) -> ServingConfig:
    result = read_paths([path])
    assert result.failures == ()
    (config,) = result.configs
    return config


def failure_of(path: Path) -> str:
    result = read_paths([path])
    assert result.configs == ()
    (failure,) = result.failures
    assert failure.path == str(path)
    return failure.message


def values_of(config: ServingConfig) -> dict[str, object]:
    return {setting.name: setting.value for setting in config.settings}


def setting_of(config: ServingConfig, name: str) -> Setting:
    (found,) = [setting for setting in config.settings if setting.name == name]
    return found


def bytes_at(config: ServingConfig, span: Span | None) -> str | None:
    assert config.path is not None
    return None if span is None else Path(config.path).read_bytes()[span.start : span.end].decode()
