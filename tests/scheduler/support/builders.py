"""Pods, nodes and states for tests, built from the fields that a test depends on."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.names import ALLOCATION
from allocation.settings import AllocationSettings
from allocation.wire.record import encode
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from cluster.metadata import ObjectMeta
from scheduler.objects import LabelledMeta, Namespace, Node, Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import ScoreWeights
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.scheduling import cycle_of


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def pod(
    name: str,
    *,
    memory: int | None = None,
    node: str = "",
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    created: str = "2026-01-01T00:00:00Z",
    deleted: str | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """Return a pod as the API server would send it; `memory` makes it ask for one card with that many MiB."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)} if memory is not None else {}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "annotations": annotations or {},
                "labels": labels or {},
                "creationTimestamp": created,
                "deletionTimestamp": deleted,
            },
            "spec": {"schedulerName": "tranche", "nodeName": node, "containers": containers, **spec},
            "status": {"phase": phase, **(status or {})},
        },
        Pod,
    )


def allocated(
    name: str, *, node: str, memory: int, card: int = 0, isolation: Isolation = Isolation.NONE, **more: Any
) -> Pod:
    """Return a pod that runs on a card."""
    share = CardShare(f"GPU-{node}-{card}", card, memory, 0)
    annotations = {ALLOCATION: encode(Allocation(node, {"main": (share,)}, isolation=isolation))}
    return pod(name, memory=memory, node=node, annotations=annotations, **{"phase": "Running", **more})


def node(name: str, **fields: Any) -> Node:
    """Return a node with enough resources for most tests."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable},
    }
    return msgspec.convert({**body, **fields}, Node)


def status(name: str, *, cards: int = 2, memory: int = 1000, healthy: bool = True) -> GpuNodeStatus:
    """Return what an agent reports of a node."""
    inventory = NodeInventory(
        name, tuple(Card(f"GPU-{name}-{index}", index, memory, slots=4, healthy=healthy) for index in range(cards))
    )
    return GpuNodeStatus(ObjectMeta(name=name), status_of(inventory))


def lease(node: str, *, renewed: str = "2026-01-01T00:00:00.000000Z", seconds: int | None = 60) -> Lease:
    """Return the Lease of a node's agent."""
    spec = LeaseSpec(holder_identity="agent", lease_duration_seconds=seconds, renew_time=renewed)
    return Lease(LeaseMeta(name=f"agent-{node}", namespace="tranche-system"), spec)


def namespace(name: str, **labels: str) -> Namespace:
    """Return a namespace with these labels."""
    return Namespace(LabelledMeta(name=name, labels=labels))


def state(
    *nodes: str,
    clock: Clock | None = None,
    cards: int = 2,
    has_queue: bool = True,
    scores_resources: bool = False,
    stranded: float = ScoreWeights().stranded,
    settings: AllocationSettings | None = None,
    foreign_drivers: tuple[str, ...] = (),
    unix: Callable[[], float] = lambda: 0.0,
    reads_pod_groups: bool = False,
) -> ClusterState:
    """Return the state of a scheduler with these nodes; with its `unix` no pod is older than the scheduler."""
    clock = clock or Clock()
    make_queue = partial(
        SchedulingQueue,
        clock=clock,
        unix=unix,
        first_backoff=1.0,
        longest_backoff=8.0,
        may_fit=lambda kind: cycle_of(made).may_fit(kind),
    )
    made: ClusterState = ClusterState(
        settings=settings or AllocationSettings(),
        make_queue=make_queue,
        clock=clock,
        has_queue=has_queue,
        scores_resources=scores_resources,
        stranded=stranded,
        foreign_drivers=foreign_drivers,
        reads_pod_groups=reads_pod_groups,
    )
    for name in nodes:
        made.set_node(node(name))
        made.agent_reports.set(status(name, cards=cards))
    return made
