"""What must hold of a cluster at any time, counted from the API server's objects alone."""

from __future__ import annotations

import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from allocation import hami, holding
from allocation.ledger import Ledger
from allocation.names import HAMI_REGISTER
from allocation.settings import AllocationSettings
from cluster.gpu_node_status import GpuNodeStatus
from lab import kubectl
from lab.layout import Port
from scheduler.objects import Pod

if TYPE_CHECKING:
    from lab.layout import Layout


def recount(layout: Layout) -> Ledger:
    """Count who has what from inventories and pods, as a restart does; every card within its capacity.

    A pod with a node has an allocation and one without has none: anything else fails.
    """
    ledger = Ledger()
    for status in kubectl.get(layout, "gpunodestatuses")["items"]:
        ledger.set_node(msgspec.convert(status, GpuNodeStatus).inventory())
    for node in kubectl.get(layout, "nodes")["items"]:
        name, annotations = node["metadata"]["name"], node["metadata"].get("annotations", {})
        if HAMI_REGISTER in annotations and ledger.inventory(name) is None:
            ledger.set_node(hami.decode_register(name, annotations[HAMI_REGISTER]))
    for found in kubectl.get(layout, "pods", "-A")["items"]:
        pod = msgspec.convert(found, Pod)
        if pod.finished or not pod.spec.node_name:
            assert pod.finished or "gpu.scheduling/allocation" not in pod.metadata.annotations, f"{pod}: no node"
            continue
        held = holding.of_pod(
            pod.spec, pod.metadata.annotations, node=pod.spec.node_name, settings=AllocationSettings()
        )
        if held is not None:
            _, charges = held
            ledger.record(pod.uid, pod.spec.node_name, charges)
    assert (ledger.used <= ledger.total).all(), "a card is over its capacity"
    return ledger


def pods(layout: Layout, namespace: str) -> dict[str, Pod]:
    """Answer the pods of a namespace by name, as the scheduler sees them."""
    found = kubectl.get(layout, "-n", namespace, "pods")["items"]
    return {each["metadata"]["name"]: msgspec.convert(each, Pod) for each in found}


def by_card(ledger: Ledger) -> dict[str, tuple[int, int, int]]:
    """Answer MiB, millicards and slots in use by the UUID of the card."""
    answer = {}
    for node in ledger.nodes:
        inventory, row = ledger.inventory(node), ledger.row(node)
        assert inventory is not None
        for position, card in enumerate(inventory.cards):
            memory, cores, slots = ledger.used[:, row, position].tolist()
            answer[card.uuid] = (memory, cores, slots)
    return answer


def scheduler_counts(layout: Layout) -> dict[str, tuple[int, int, int]]:
    """Answer the same as the running scheduler's ledger has it, read from its metrics."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}/metrics", timeout=5) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}

    def values(name: str) -> dict[str, float]:
        return {sample.labels["device_uuid"]: sample.value for sample in families[name].samples}

    memory, cores = values("hami_gpu_memory_allocated_bytes"), values("hami_gpu_core_allocated_ratio")
    slots = values("hami_gpu_shared_count")
    return {uuid: (round(memory[uuid] / 2**20), round(cores[uuid] * 10), round(slots[uuid])) for uuid in memory}


def bindings(events: list[dict[str, Any]]) -> Counter[str]:
    """Count the Bindings of each pod in audit events."""
    return Counter(each["objectRef"]["name"] for each in events if each["objectRef"].get("subresource") == "binding")
