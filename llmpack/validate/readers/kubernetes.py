"""Kubernetes manifests: the server that each container starts.

Source: Kubernetes API reference, `Container` v1 core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from llmpack.validate.model import Container, Port, ServingConfig, Setting
from llmpack.validate.readers.server_command import Surroundings, environment_settings, read_image_command
from llmpack.validate.readers.source_text import SourceText
from llmpack.validate.readers.words import Word
from llmpack.validate.readers.yaml_tree import YamlNode, walk_mappings
from llmpack.validate.readers.yaml_words import item_word, read_arguments


def is_kubernetes(document: YamlNode) -> bool:
    """Whether the document is an object of the Kubernetes API."""
    return document.get("apiVersion") is not None and document.get("kind") is not None


def read_kubernetes(
    source: SourceText, document: YamlNode, config_maps: Mapping[str, YamlNode] | None = None
) -> list[ServingConfig]:
    """The configs of all containers that start a server, in whatever object their pod stands.

    Args:
        source: The file.
        document: The object.
        config_maps: The data of the file's ConfigMaps by name.

    Raises:
        UnreadableConfig: A quote in a script is not closed.
    """
    configs = []
    for pod in walk_mappings(document):
        containers = pod.get("containers")
        for container in (containers.items or []) if containers else []:
            if container.pairs is not None:
                configs += _read_container(source, pod, container, config_maps or {})
    return configs


def find_config_maps(documents: Iterable[YamlNode]) -> dict[str, YamlNode]:
    """The `data` of every ConfigMap among the documents by the map's name."""
    maps = {}
    for document in documents:
        metadata, data = document.get("metadata"), document.get("data")
        name = _text(metadata.get("name")) if metadata else None
        if _text(document.get("kind")) == "ConfigMap" and name is not None and data is not None:
            maps[name] = data
    return maps


def _read_container(
    source: SourceText, pod: YamlNode, node: YamlNode, config_maps: Mapping[str, YamlNode]
) -> list[ServingConfig]:
    variables: dict[str, str] = {}
    environment = _mapped_environment(source, node.get("envFrom"), variables, config_maps)
    environment += _environment(source, node.get("env"), variables, config_maps)
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


def _mapped_environment(
    source: SourceText, node: YamlNode | None, variables: dict[str, str], config_maps: Mapping[str, YamlNode]
) -> tuple[Setting, ...]:
    """The variables of `envFrom`, whose ConfigMaps stand in the same file; their values are taken as they are."""
    pairs: list[tuple[str, Word]] = []
    for item in (node.items or []) if node else []:
        reference, prefix = item.get("configMapRef"), _text(item.get("prefix")) or ""
        data = config_maps.get(_text(reference.get("name")) or "") if reference else None
        for key, value in (data.pairs or []) if data else []:
            if key.text and value.text is not None:
                pairs.append((prefix + key.text, item_word(source, value, {}, is_kubernetes=True)))
                variables[prefix + key.text] = value.text
    return environment_settings(source, pairs)


def _from_config_map(item: YamlNode, config_maps: Mapping[str, YamlNode]) -> YamlNode | None:
    """The value of `valueFrom: {configMapKeyRef: {name, key}}`."""
    origin = item.get("valueFrom")
    reference = origin.get("configMapKeyRef") if origin else None
    data = config_maps.get(_text(reference.get("name")) or "") if reference else None
    return data.get(_text(reference.get("key")) or "") if data and reference else None


def _environment(
    source: SourceText, node: YamlNode | None, variables: dict[str, str], config_maps: Mapping[str, YamlNode]
) -> tuple[Setting, ...]:
    """The variables in order, each of which may use those before it; `variables` takes their values."""
    pairs: list[tuple[str, Word]] = []
    for item in (node.items or []) if node else []:
        name, value = _text(item.get("name")), item.get("value") or _from_config_map(item, config_maps)
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
