"""GPUBindings in the lab: the component's objects, processes that apply bindings, and the objects of an app service."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from allocation import names
from allocation.wire import record
from cluster.resource import GPU_BINDINGS
from lab import fleet, manifests
from lab.client import client
from lab.files import write_private
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import simulated_nodes
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

PROCESSES = ("scheduler", "webhook")
DEFINITION = f"{GPU_BINDINGS.plural}.{GPU_BINDINGS.group}"
NODE_A, NODE_B = "gpu-sim-bound-a", "gpu-sim-bound-b"
APP = "comfyui"
_CARDS = 8


def component() -> list[dict[str, Any]]:
    """Return the objects that manifests/gpubindings adds."""
    files = (manifests.ROOT / "gpubindings" / name for name in ("crd.yaml", "rbac.yaml"))
    return [each for file in files for each in manifests.read(file.read_text(encoding="utf-8"))]


@contextmanager
def applied(layout: Layout, mode: str, *flags: str) -> Iterator[None]:
    """Install the component and run the processes in a mode, with further flags; restore the lab afterwards."""
    client(layout).apply(*component())
    client(layout).until_established(DEFINITION)
    try:
        for name in PROCESSES:
            restart(layout, name, f"--allocation-bindings-mode={mode}", *flags)
        yield
    finally:
        for name in PROCESSES:
            restart(layout, name)
        delete(layout, *component())


def binding(name: str, uuid: str, app: str, **spec: Any) -> dict[str, Any]:
    """Return a GPUBinding of a card that selects the pods of an app; by default of every user and namespace."""
    selector = {"matchLabels": {names.APP_NAME: app}}
    return {
        "apiVersion": GPU_BINDINGS.api_version,
        "kind": GPU_BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"uuid": uuid, "appName": app, "podSelector": selector, **spec},
    }


def labels(app: str, owner: str) -> dict[str, str]:
    """Return the labels of the pods of a user's app."""
    return {names.APP_NAME: app, names.APP_OWNER: owner}


@contextmanager
def nodes(layout: Layout) -> Iterator[None]:
    """Run two additional simulated nodes with 8 cards each, and wait until their agent reports them."""
    fleet_file = layout.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    added = yaml.safe_dump({node: {"count": _CARDS, "memoryMiB": fleet.CARD_MEMORY_MIB} for node in (NODE_A, NODE_B)})
    with simulated_nodes.running(layout, NODE_A), simulated_nodes.running(layout, NODE_B):
        write_private(fleet_file, before + added)
        try:
            for node in (NODE_A, NODE_B):
                simulated_nodes.until_reported(layout, node, _CARDS)
            yield
        finally:
            write_private(fleet_file, before)


def app_pod(name: str, owner: str, **limits: int | str) -> dict[str, Any]:
    """Return a pod of a user's app that requests one card."""
    return pod(name, labels=labels(APP, owner), gpu=1, **limits)


def cards(pod_: dict[str, Any]) -> list[str]:
    """Return the UUIDs of a placed pod's cards, after a look at the variables that its container reads."""
    annotations = pod_["metadata"]["annotations"]
    found = [share.uuid for share in record.decode(annotations[names.ALLOCATION]).containers["main"]]
    for variable in ("nvidia-visible-devices", "cuda-visible-devices"):
        value = annotations[names.environment_key(variable, "main")]
        assert [each.rpartition("=")[2] for each in value.split(",")] == found, (variable, value)
    return found


def placed(namespace: Namespace, name: str, *, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    """Wait until a pod has a node, and return it."""

    def bound(pods: Mapping[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] | None = pods.get(name)
        return found if found is not None and found["spec"].get("nodeName") else None

    return namespace.until(bound, what=f"a node for {name}", timeout_s=timeout_s)


def failure(namespace: Namespace, name: str, words: str) -> str:
    """Wait until a warning about a pod has these words, and return its reason."""

    def reason(events: Mapping[str, Any]) -> str | None:
        about = (each for each in events.values() if each["involvedObject"]["name"] == name)
        return next((each["reason"] for each in about if each["type"] == "Warning" and words in each["message"]), None)

    return namespace.until(reason, "events", what=f"the event of {name} with: {words}")
