"""Compose files: the server that each service starts.

Source: the Compose specification, `services` top-level element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmpack.errors import UnreadableConfig
from llmpack.validate.model import Container, Port, ServingConfig, Setting
from llmpack.validate.readers.docker_run import parse_port
from llmpack.validate.readers.env_file import env_settings, env_values
from llmpack.validate.readers.server_command import Surroundings, environment_settings, read_image_command
from llmpack.validate.readers.source_text import SourceText, read_source
from llmpack.validate.readers.words import Word
from llmpack.validate.readers.yaml_tree import YamlNode, map_scalar
from llmpack.validate.readers.yaml_words import expand_all, item_word, read_arguments


def is_compose(document: YamlNode) -> bool:
    """Whether the document has services."""
    services = document.get("services")
    return services is not None and services.pairs is not None and document.get("apiVersion") is None


def read_compose(source: SourceText, document: YamlNode) -> list[ServingConfig]:
    """The configs of all services that start a server.

    Raises:
        UnreadableConfig: A quote in a command is not closed.
    """
    services = document.get("services")
    variables = _project_variables(source)
    configs = []
    for name, service in (services.pairs or []) if services else []:
        if service.pairs is not None:
            configs += _read_service(source, name, service, variables)
    return configs


def _project_variables(source: SourceText) -> dict[str, str]:
    """Values of the `.env` beside the file, which Compose replaces variables from."""
    if source.path is None:
        return {}
    path = Path(source.path).parent / ".env"
    if not path.is_file():
        return {}
    try:
        return env_values(read_source(path))
    except UnreadableConfig:
        return {}


def _read_service(
    source: SourceText, name: YamlNode, service: YamlNode, variables: Mapping[str, str]
) -> list[ServingConfig]:
    words = read_arguments(source, service.get("entrypoint"), variables)
    words += read_arguments(source, service.get("command"), variables)
    around = Surroundings(
        source,
        "compose",
        container=_container(source, name, service, variables),
        environment=_env_files(source, service.get("env_file"))
        + _environment(source, service.get("environment"), variables),
        is_containerised=True,
        anchor=source.location(name.start, f"/services/{name.text}"),
    )
    return read_image_command(words, around)


def _container(source: SourceText, name: YamlNode, service: YamlNode, variables: Mapping[str, str]) -> Container:
    image = _word(source, service.get("image"), variables)
    shm = _word(source, service.get("shm_size"), variables)
    ipc = _word(source, service.get("ipc"), variables)
    return Container(
        image=image.text if image and image.is_known else None,
        location=source.location(name.start, f"/services/{name.text}"),
        image_location=source.location(image.start) if image else None,
        shm_size=shm.text if shm else None,
        shm_location=source.location(shm.start) if shm else None,
        is_host_ipc=ipc is not None and ipc.text == "host",
        ulimits=tuple(_ulimits(service.get("ulimits"))),
        ports=tuple(_ports(source, service.get("ports"), variables)),
    )


def _word(source: SourceText, node: YamlNode | None, variables: Mapping[str, str]) -> Word | None:
    return item_word(source, node, variables) if node is not None and node.text is not None else None


def _environment(source: SourceText, node: YamlNode | None, variables: Mapping[str, str]) -> tuple[Setting, ...]:
    """Of a mapping, or of a list of `NAME=value`."""
    pairs: list[tuple[str, Word]] = []
    for name, value in (node.pairs or []) if node else []:
        if value.text is not None:
            pairs.append((name.text or "", item_word(source, value, variables)))
    for item in (node.items or []) if node else []:
        word = expand_all(map_scalar(source, item), variables)
        variable, equals, _ = word.text.partition("=")
        if equals:
            pairs.append((variable, word.cut(len(variable) + 1)))
    return environment_settings(source, pairs)


def _env_files(source: SourceText, node: YamlNode | None) -> tuple[Setting, ...]:
    """The variables of the files in `env_file`: a path, or a list of paths or of `path:` mappings."""
    nodes = [] if node is None else node.items if node.items is not None else [node]
    settings: list[Setting] = []
    for item in nodes:
        path = item.get("path") or item
        if source.path is not None and path.text:
            settings += _env_file(Path(source.path).parent / path.text)
    return tuple(settings)


def _env_file(path: Path) -> tuple[Setting, ...]:
    """Nothing for a file that is not there or no env file: often it is made where the container starts."""
    try:
        return env_settings(read_source(path)) if path.is_file() else ()
    except UnreadableConfig:
        return ()


def _ulimits(node: YamlNode | None) -> Iterator[tuple[str, str]]:
    for name, value in (node.pairs or []) if node else []:
        soft, hard = value.get("soft"), value.get("hard")
        limits = [part.text for part in (soft, hard) if part and part.text]
        yield name.text or "", value.text if value.text is not None else ":".join(limits)


def _ports(source: SourceText, node: YamlNode | None, variables: Mapping[str, str]) -> Iterator[Port]:
    """Of short (`8000:8000`) and long (`target: 8000`) forms."""
    for item in (node.items or []) if node else []:
        target, published = item.get("target"), item.get("published")
        if item.text is not None:
            port = parse_port(source, item_word(source, item, variables))
            if port:
                yield port
        elif target and (target.text or "").isdecimal():
            host = published.text if published and (published.text or "").isdecimal() else None
            yield Port(int(host) if host else None, int(target.text or 0), source.location(item.start))
