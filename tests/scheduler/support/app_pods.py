"""GPUBindings, and pods of applications, for tests; each test states only what matters to it."""

from typing import Any

import msgspec

from allocation.names import APP_NAME, APP_OWNER, CONSUME_POLICY
from allocation.settings import AllocationSettings, BindingSettings, BindingsMode
from cluster.gpu_binding import GpuBinding
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod


def settings(mode: BindingsMode = "required", *, require_namespace: bool = False) -> AllocationSettings:
    """Return the settings of a cluster in which bindings count."""
    return AllocationSettings(bindings=BindingSettings(mode, require_namespace))


def gpu_binding(
    name: str, uuid: str, *, app: str = "comfyui", created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> GpuBinding:
    """Return a binding as the API server sends it; the fields of `spec` have the names of the API.

    It selects every pod of the application.
    """
    fields = {"uuid": uuid, "appName": app, "podSelector": {}, **spec}
    return msgspec.convert(
        {"metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}, "spec": fields}, GpuBinding
    )


def app_labels(app: str = "comfyui", owner: str = "", *, policy: str = "") -> dict[str, str]:
    """Return the labels of a pod of an application."""
    labels = {APP_NAME: app, APP_OWNER: owner, CONSUME_POLICY: policy}
    return {key: value for key, value in labels.items() if value}


def app_pod(name: str, app: str = "comfyui", owner: str = "", *, policy: str = "", **fields: Any) -> Pod:
    """Return a pod of an application that asks for a card."""
    return pod(name, **{"memory": 100, "labels": app_labels(app, owner, policy=policy), **fields})
