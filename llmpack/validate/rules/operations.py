"""LP140: what the container around the server gives it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from llmpack.validate.model import Container, ServingConfig
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome
from llmpack.validate.rules.triton_contract import FIRST_RELEASE, release_of_image
from llmpack.validate.rules.values import as_int, find_setting

# Source: Docker's documentation, `docker run --shm-size`: 64 MB when not given. Triton's Python backend and
# vLLM's workers exchange tensors there; the Triton documentation starts its containers with 1 GB.
_DEFAULT_SHM_BYTES = 64 << 20
_NEEDED_SHM_BYTES = 256 << 20
_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def check_operations(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """LP140: shared memory, ports and the image's release."""
    container = config.container
    if container is None:
        return
    if container.starts_container:
        yield from _check_shared_memory(container)
        yield from _check_published_port(config, container)
        yield from _check_port_collisions(config, context)
    yield from _check_image(container)


def _check_shared_memory(container: Container) -> Iterator[Outcome]:
    image = container.image or ""
    if container.is_host_ipc or not ("tritonserver" in image or "vllm" in image):
        return
    size = _DEFAULT_SHM_BYTES if container.shm_size is None else _parse_size(container.shm_size)
    if size is None or size >= _NEEDED_SHM_BYTES:
        return
    yield Discrepancy(
        container.shm_location or container.location,
        "tensors travel through /dev/shm, and the container has too little of it",
        given=container.shm_size or "64m, the default",
        compiled="256m",
        relation=">=",
    )


def _parse_size(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


def _check_published_port(config: ServingConfig, container: Container) -> Iterator[Outcome]:
    setting = find_setting(config, "port")
    served = None if setting is None else as_int(setting)
    if (
        setting is None
        or served is None
        or not container.ports
        or served in {port.container for port in container.ports}
    ):
        return
    published = sorted({port.container for port in container.ports})
    message = f"the server listens on {served}, but the container publishes {', '.join(map(str, published))}"
    yield Discrepancy(setting.location, message, given=setting.value, compiled=list(published), relation="in")


def _check_port_collisions(config: ServingConfig, context: Context) -> Iterator[Outcome]:
    """Two containers of one file, or one container twice, cannot have the same port of the host."""
    containers = {id(other.container): other.container for other in context.same_file if other.container is not None}
    containers[id(config.container)] = config.container or containers[id(config.container)]
    started = [container for container in containers.values() if container.starts_container]
    taken = Counter(port.host for container in started for port in container.ports if port.host is not None)
    for port in config.container.ports if config.container else ():
        if port.host is not None and taken[port.host] > 1:
            message = f"port {port.host} of the host is published more than once"
            yield Discrepancy(port.location, message, given=port.host, relation="once")


def _check_image(container: Container) -> Iterator[Outcome]:
    release = release_of_image(container.image)
    if release is not None and release < FIRST_RELEASE and "vllm" in (container.image or ""):
        message = f"the vLLM backend has the tensors of its contract from {FIRST_RELEASE} on; this image is older"
        place = container.image_location or container.location
        yield Discrepancy(place, message, given=container.image, compiled=FIRST_RELEASE, relation=">=")
