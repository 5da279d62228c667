"""Kubernetes objects that run the server: a claim for its files, a Deployment and a Service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmpack.bundle.openai.command import DEFAULTS, exec_words
from llmpack.bundle.openai.containers import (
    CACHE_DIR,
    HUB_TOKEN_VARIABLE,
    SCRATCH_DIR,
    SHARED_MEMORY_DIR,
    USER_ID,
    container_variables,
    find_mount,
    has_cache,
)
from llmpack.bundle.openai.options import OpenAIPlan
from llmpack.bundle.openai.resources import GRACE_PERIOD_S, PRE_STOP_S, STARTUP_S

Object = dict[str, Any]

_STARTUP_PERIOD_S = 5
_FILES = "files"


def build_objects(plan: OpenAIPlan) -> list[Object]:
    """All objects, in the order in which they are applied.

    Source: Kubernetes API reference, PersistentVolumeClaim v1, Deployment v1 apps, Service v1.
    """
    return [_build_claim(plan), _build_deployment(plan), _build_service(plan)]


def _metadata(plan: OpenAIPlan, name: str) -> Object:
    return {"name": name, "labels": _labels(plan)}


def _labels(plan: OpenAIPlan) -> Object:
    return {"app.kubernetes.io/name": plan.resource_name, "app.kubernetes.io/component": plan.command.engine}


def _build_claim(plan: OpenAIPlan) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(plan, f"{plan.resource_name}-{_FILES}"),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{plan.resources.storage_gib}Gi"}},
        },
    }


def _build_deployment(plan: OpenAIPlan) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(plan, plan.resource_name),
        "spec": {
            "replicas": 1,
            # Two servers at once would want the memory, the devices and the claim twice.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app.kubernetes.io/name": plan.resource_name}},
            "template": {"metadata": {"labels": _labels(plan)}, "spec": _build_pod(plan)},
        },
    }


def _build_pod(plan: OpenAIPlan) -> Object:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_PERIOD_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_build_container(plan)],
        "volumes": [{"name": volume.name, **volume.source} for volume in _find_volumes(plan)],
    }


@dataclass(frozen=True, slots=True)
class _Volume:
    """A volume of the pod and where its container has it."""

    name: str
    source: Object
    inside: str
    is_read_only: bool = False


def _find_volumes(plan: OpenAIPlan) -> list[_Volume]:
    """The claim holds what is served, or else what the hub gives; everything else lasts as long as the pod."""
    claim = {"persistentVolumeClaim": {"claimName": f"{plan.resource_name}-{_FILES}"}}
    mount = find_mount(plan)
    volumes = [_Volume(_FILES, claim, mount.inside, is_read_only=True) if mount else _Volume(_FILES, claim, CACHE_DIR)]
    if mount and has_cache(plan):
        volumes.append(_Volume("cache", {"emptyDir": {}}, CACHE_DIR))
    volumes.append(_Volume("scratch", {"emptyDir": {}}, SCRATCH_DIR))
    if plan.resources.shared_memory_bytes:
        size = f"{plan.resources.shared_memory_bytes >> 20}Mi"
        volumes.append(
            _Volume("shared-memory", {"emptyDir": {"medium": "Memory", "sizeLimit": size}}, SHARED_MEMORY_DIR)
        )
    return volumes


def _build_container(plan: OpenAIPlan) -> Object:
    mount = find_mount(plan)
    return {
        "name": "server",
        "image": plan.image,
        "command": exec_words(plan.command, mount.inside if mount else ""),
        "env": _build_environment(plan),
        "ports": [{"name": "http", "containerPort": DEFAULTS.port}],
        **_build_probes(),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_S)]}}},
        "resources": _build_resources(plan),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [_build_mount(volume) for volume in _find_volumes(plan)],
    }


def _build_environment(plan: OpenAIPlan) -> list[Object]:
    secret = {"name": f"{plan.resource_name}-api-key"}
    key = {"secretKeyRef": secret | {"key": "api-key"}}
    token = {"secretKeyRef": secret | {"key": "hf-token", "optional": True}}
    return [
        {"name": plan.command.api_key_variable, "valueFrom": key},
        *([{"name": HUB_TOKEN_VARIABLE, "valueFrom": token}] if plan.loads_from_hub else []),
        *({"name": name, "value": value} for name, value in container_variables(plan).items()),
    ]


def _build_probes() -> Object:
    """While it drains, /health says 503: the pod leaves the Service and is not restarted for it."""
    health = {"httpGet": {"path": "/health", "port": "http"}}
    return {
        "startupProbe": {
            **health,
            "periodSeconds": _STARTUP_PERIOD_S,
            "failureThreshold": STARTUP_S // _STARTUP_PERIOD_S,
        },
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 1},
        "livenessProbe": {**health, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
    }


def _build_resources(plan: OpenAIPlan) -> Object:
    """Fixed shapes need fixed memory, so it is asked for in full; a limit on the CPU would only slow it down."""
    memory = {"memory": f"{plan.resources.memory_mib}Mi"}
    devices = {plan.resources.accelerator: str(plan.resources.num_accelerators)} if plan.resources.accelerator else {}
    return {
        "requests": {"cpu": "1"} | memory | devices,
        "limits": (memory if plan.resources.is_exact else {}) | devices,
    }


def _build_mount(volume: _Volume) -> Object:
    mount: Object = {"name": volume.name, "mountPath": volume.inside}
    return mount | {"readOnly": True} if volume.is_read_only else mount


def _build_service(plan: OpenAIPlan) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(plan, plan.resource_name),
        "spec": {
            "selector": {"app.kubernetes.io/name": plan.resource_name},
            "ports": [{"name": "http", "port": DEFAULTS.port, "targetPort": "http"}],
        },
    }
