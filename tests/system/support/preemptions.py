"""Pods of different priority on a node of their own, and what becomes of those that are preempted."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lab import manifests
from lab.client import client
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

NODE = gpubindings.NODE_A
CARDS = 8
STAYS_S = 300
"""How long a pod that stays keeps its cards while it is being deleted, unless it is ended; less than a nomination."""
CLASSES = {"middle": {"value": 500}, "high": {"value": 1000}, "patient": {"value": 1000, "preemptionPolicy": "Never"}}


@contextmanager
def priorities(layout: Layout) -> Iterator[None]:
    """Define the PriorityClasses preemption-middle, preemption-high and preemption-patient, which preempts none."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    made = [{**head, "metadata": {"name": f"preemption-{name}"}, **fields} for name, fields in CLASSES.items()]
    client(layout).apply(*made)
    try:
        yield
    finally:
        for name in CLASSES:
            client(layout).delete("priorityclass", f"preemption-{name}")


@contextmanager
def violating_rigid_budgets(layout: Layout) -> Iterator[None]:
    """Run the scheduler with the component manifests/rigid-budgets; restore the lab afterwards."""
    added = manifests.read((manifests.ROOT / "rigid-budgets" / "scheduler.yaml").read_text(encoding="utf-8"))
    client(layout).apply(*added)
    try:
        restart(layout, "scheduler", "--preemption-rigid-budgets=violate")
        yield
    finally:
        restart(layout, "scheduler")
        delete(layout, *added)


def asking(name: str, priority: str = "", *, count: int = 1, stays: bool = False, **fields: Any) -> dict[str, Any]:
    """Return a pod that asks for whole cards of the node; if it `stays`, it keeps them while it is being deleted."""
    made = pod(name, node=NODE, gpu=count)
    made["metadata"] |= {"annotations": fields.pop("annotations", {})}
    made["metadata"]["labels"] |= fields.pop("labels", {})
    if stays:
        stay(made)
    if priority:
        made["spec"]["priorityClassName"] = f"preemption-{priority}"
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    limits |= {f"nvidia.com/{key}": fields.pop(key) for key in ("gpumem", "gpucores") if key in fields}
    made["spec"] |= fields
    return made


def fill(namespace: Namespace, count: int = CARDS, **fields: Any) -> list[str]:
    """Let pods of priority 0 take that many cards; return their names."""
    names = [f"low-{number}" for number in range(count)]
    namespace.create(*(asking(name, **fields) for name in names))
    namespace.placed(count)
    return names


def bound(namespace: Namespace, name: str) -> dict[str, Any]:
    """Wait until a pod has a node, and return it."""
    return gpubindings.placed(namespace, name)


def evicted(namespace: Namespace, count: int = 0) -> set[str]:
    """Return the names of the pods that were preempted, by their events, as soon as there are at least `count`."""
    kind = "events.events.k8s.io"

    def found(events: Mapping[str, Any]) -> set[str] | None:
        names = {each["regarding"]["name"] for each in events.values() if each["reason"] == "Preempted"}
        return names if len(names) >= count else None

    if not count:
        return found({each["metadata"]["name"]: each for each in namespace.list(kind)}) or set()
    return namespace.until(found, kind, what=f"{count} events about evictions")


def leaving(namespace: Namespace, count: int = 1) -> list[dict[str, Any]]:
    """Wait until `count` pods are being deleted, and return them."""

    def found(pods: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        leaving = [each for each in pods.values() if "deletionTimestamp" in each["metadata"]]
        return leaving if len(leaving) == count else None

    return namespace.until(found, what=f"{count} pods that are being deleted")


def stay(made: dict[str, Any]) -> None:
    """Let a pod keep its cards while it is being deleted: its containers sleep before they end."""
    made["spec"]["terminationGracePeriodSeconds"] = STAYS_S
    for container in made["spec"]["containers"]:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": STAYS_S}}}


def end(namespace: Namespace, *names: str) -> None:
    """End pods that stay, and wait until they are gone."""
    namespace.delete("pod", *names, grace_s=1)


def let_go(namespace: Namespace) -> None:
    """End all pods that are being deleted."""
    end(namespace, *(each["metadata"]["name"] for each in namespace.pods() if "deletionTimestamp" in each["metadata"]))
