"""Joins what was read of one Triton model repository: models know each other, a model.json knows its model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import ServingConfig, TritonModel
from llmpack.validate.readers.source_text import read_source
from llmpack.validate.readers.triton_config import read_triton_config

MAX_SIBLINGS = 200


def join_repositories(configs: Sequence[ServingConfig]) -> Iterator[ServingConfig]:
    """The configs, with `siblings` and the `triton` of a model.json filled in."""
    models = {config.triton.directory: config.triton for config in configs if config.triton}
    neighbours: dict[Path, dict[str, TritonModel]] = {}
    for directory, found in models.items():
        neighbours.setdefault(Path(directory).parent, {})[directory] = found
    for config in configs:
        model = config.triton or (_owner(config, models) if config.kind == "model.json" else None)
        if model is None:
            yield config
            continue
        siblings = neighbours.get(Path(model.directory).parent, {model.directory: model})
        if model.ensemble_steps:
            siblings = _with_missing(model, siblings)
        yield replace(config, triton=model, siblings=tuple(siblings.values()))


def _owner(config: ServingConfig, models: dict[str, TritonModel]) -> TritonModel | None:
    """The model in whose version directory the model.json lies."""
    version_dir = Path(config.path or "").parent
    if not version_dir.name.isdecimal():
        return None
    return models.get(str(version_dir.parent)) or _read_model(version_dir.parent / "config.pbtxt")


def _with_missing(model: TritonModel, siblings: dict[str, TritonModel]) -> dict[str, TritonModel]:
    """The siblings with those models of the steps that lie beside the ensemble but were not asked for."""
    known = {Path(directory).name for directory in siblings}
    complete = dict(siblings)
    for step in model.ensemble_steps[:MAX_SIBLINGS]:
        directory = Path(model.directory).parent / step.model_name
        if step.model_name and step.model_name not in known and directory.name == step.model_name:
            found = _read_model(directory / "config.pbtxt")
            if found:
                complete[str(directory)] = found
    return complete


def _read_model(path: Path) -> TritonModel | None:
    if not path.is_file():
        return None
    try:
        return read_triton_config(read_source(path), is_repository=True).model
    except UnreadableConfig:
        return None
