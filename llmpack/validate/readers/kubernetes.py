"""Kubernetes manifests: the server that each container starts.

Source: Kubernetes API reference, `Container` v1 core.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmpack.validate.model import Container, Port, ServingConfig, Setting
from llmpack.validate.readers.server_command import Surroundings, environment_settings, read_image_command
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import Word
from llmpack.validate.readers.yaml_tree import YamlNode, walk_mappings
from llmpack.validate.readers.yaml_words import item_word, read_arguments


def is_kubernetes(document: YamlNode) -> bool:
    """Whether the document is an object of the Kubernetes API."""
    return document.get("apiVersion") is not None and document.get("kind") is not None


def read_kubernetes(source: SourceText, document: YamlNode) -> list[ServingConfig]:
    """The configs of all containers that start a server, in whatever object their pod stands.

    Raises:
        UnreadableConfig: A quote in a script is not closed.
    """
    configs = []
    for pod in walk_mappings(document):
        containers = pod.get("containers")
        for container in (containers.items or []) if containers else []:
            if container.pairs is not None:
                configs += _read_container(source, pod, container)
    return configs


def _read_container(source: SourceText, pod: YamlNode, node: YamlNode) -> list[ServingConfig]:
    variables: dict[str, str] = {}
    environment = _environment(source, node.get("env"), variables)
    command = read_arguments(source, _list_only(node.get("command")), variables, is_kubernetes=True)
    words = command + read_arguments(source, _list_only(node.get("args")), variables, is_kubernetes=True)
    around = Surroundings(
        source,
        "kubernetes",
        container=_container(source, pod, node),
        environment=environment,
        is_containerised=True,
        anchor=source.location(node.start),
        variables=variables,
    )
    return read_image_command(words, around)


def _list_only(node: YamlNode | None) -> YamlNode | None:
    """Kubernetes takes lists only; a text here is refused by its API before any server sees it."""
    return node if node is not None and node.items is not None else None


def _environment(source: SourceText, node: YamlNode | None, variables: dict[str, str]) -> tuple[Setting, ...]:
    """The variables in order, each of which may use those before it; `variables` takes their values."""
    pairs: list[tuple[str, Word]] = []
    for item in (node.items or []) if node else []:
        name, value = _text(item.get("name")), item.get("value")
        if name is None:
            continue
        variables.pop(name, None)
        if value is not None and value.text is not None:
            word = item_word(source, value, variables, is_kubernetes=True)
            pairs.append((name, word))
            if word.is_known:
                variables[name] = word.text
    return environment_settings(source, pairs)


def _container(source: SourceText, pod: YamlNode, node: YamlNode) -> Container:
    image = node.get("image")
    shm = _shared_memory(pod, node)
    host_ipc = pod.get("hostIPC")
    return Container(
        image=_text(image),
        location=source.location(node.start),
        image_location=source.location(image.start) if image else None,
        shm_size=shm[0] if shm else None,
        shm_location=source.location(shm[1].start) if shm else None,
        is_host_ipc=host_ipc is not None and host_ipc.scalar() is True,
        ports=tuple(_ports(source, node.get("ports"))),
    )


def _shared_memory(pod: YamlNode, node: YamlNode) -> tuple[str, YamlNode] | None:
    """The size of the memory-backed volume on /dev/shm, `unlimited` without a limit, and where it stands."""
    mounts = node.get("volumeMounts")
    names = [
        _text(mount.get("name"))
        for mount in (mounts.items or [] if mounts else [])
        if _text(mount.get("mountPath")) == "/dev/shm"
    ]
    volumes = pod.get("volumes")
    for volume in (volumes.items or []) if volumes else []:
        directory = volume.get("emptyDir")
        if _text(volume.get("name")) in names and directory and _text(directory.get("medium")) == "Memory":
            return _text(directory.get("sizeLimit")) or "unlimited", volume
    return None


def _ports(source: SourceText, node: YamlNode | None) -> Iterator[Port]:
    for item in (node.items or []) if node else []:
        inside, host = _text(item.get("containerPort")), _text(item.get("hostPort"))
        if inside and inside.isdecimal():
            yield Port(int(host) if host and host.isdecimal() else None, int(inside), source.location(item.start))


def _text(node: YamlNode | None) -> str | None:
    return node.text if node is not None else None
