"""The invariants of a cluster, computed only from the API server's objects."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from allocation.ledger.ledger import Ledger
from allocation.names import HAMI_REGISTER
from allocation.settings import AllocationSettings
from allocation.wire import hami, pod_allocation
from cluster.gpu_node_status import GpuNodeStatus
from lab.client import client
from scheduler.objects import Pod
from tests.system.support import scheduler_api

if TYPE_CHECKING:
    from lab.layout import Layout


def recount(layout: Layout) -> Ledger:
    """Recount the ledger from inventories and pods, as a restart does, and check that no card is over its capacity.

    A pod without a node must not have an allocation.
    """
    ledger = Ledger()
    for status in client(layout).list("gpunodestatuses"):
        ledger.set_node(msgspec.convert(status, GpuNodeStatus).inventory())
    for node in client(layout).list("nodes"):
        name, annotations = node["metadata"]["name"], node["metadata"].get("annotations", {})
        if HAMI_REGISTER in annotations and ledger.inventory(name) is None:
            ledger.set_node(hami.decode_register(name, annotations[HAMI_REGISTER]))
    for content in client(layout).list("pods"):
        pod = msgspec.convert(content, Pod)
        if pod.finished or not pod.spec.node_name:
            assert pod.finished or "gpu.scheduling/allocation" not in pod.metadata.annotations, f"{pod}: no node"
            continue
        held = pod_allocation.read(
            pod.spec, pod.metadata.annotations, node=pod.spec.node_name, settings=AllocationSettings()
        )
        if held is not None:
            _, charges = held
            ledger.record(pod.uid, pod.spec.node_name, charges)
    assert (ledger.used <= ledger.total).all(), "a card is over its capacity"
    return ledger


def pods(layout: Layout, namespace: str) -> dict[str, Pod]:
    """Return the pods of a namespace by name, as the scheduler sees them."""
    items = client(layout).list("pods", namespace=namespace)
    return {each["metadata"]["name"]: msgspec.convert(each, Pod) for each in items}


def by_card(ledger: Ledger) -> dict[str, tuple[int, int, int]]:
    """Return MiB, millicards and slots in use, by card UUID."""
    used = {}
    for node in ledger.nodes:
        inventory, row = ledger.inventory(node), ledger.row(node)
        assert inventory is not None
        for position, card in enumerate(inventory.cards):
            memory, cores, slots, _ = ledger.used[:, row, position].tolist()
            used[card.uuid] = (memory, cores, slots)
    return used


def scheduler_shares(layout: Layout, namespace: str, name: str) -> list[Any]:
    """Return what a pod holds of each card in the ledger of the running scheduler; empty if it holds nothing."""
    worker = scheduler_api.query(layout, "/api/allocation")["allocation"].get(f"{namespace}/{name}")
    held: list[Any] = worker["gpus"] if worker is not None else []
    return held


def scheduler_counts(layout: Layout) -> dict[str, tuple[int, int, int]]:
    """Return MiB, millicards and slots in use by card UUID, from the metrics of the running scheduler."""
    samples = scheduler_api.metrics(scheduler_api.url(layout))

    def values(name: str) -> dict[str, float]:
        return {sample.labels["device_uuid"]: sample.value for sample in samples[name]}

    memory, cores = values("hami_gpu_memory_allocated_bytes"), values("hami_gpu_core_allocated_ratio")
    slots = values("hami_gpu_shared_count")
    return {uuid: (round(memory[uuid] / 2**20), round(cores[uuid] * 10), round(slots[uuid])) for uuid in memory}


def bindings(events: list[dict[str, Any]]) -> Counter[str]:
    """Count the Bindings of each pod in audit events."""
    return Counter(each["objectRef"]["name"] for each in events if each["objectRef"].get("subresource") == "binding")
