"""The state of the scheduler, rebuilt from one read of the API server."""

import time
from collections.abc import Callable

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.installation.rules import Rules
from cli.kube import gpu_claims, own_kinds
from cli.kube.objects import LIVE, UNFINISHED
from cli.kube.reports import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import note
from cluster.disruption_budget import PodDisruptionBudget
from cluster.dra import ResourceClaim, ResourceSlice
from cluster.errors import NotFoundError
from cluster.gpu_binding import GpuBinding
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.lease import Lease
from cluster.resource import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    GPU_BINDINGS,
    GPU_QUEUES,
    GPU_QUOTAS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from cluster.resource_quota import ResourceQuota
from scheduler.objects import Namespace, Node, NodeWithImages, Pod, PriorityClass
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from scheduler.state.agent_leases import GRACE_SECONDS
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)


class _Clock:
    """A clock that is set to the moments at which a running scheduler would have seen each object."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def empty(rules: Rules, clock: Callable[[], float]) -> ClusterState:
    """Return the state of a scheduler that has seen no object yet."""
    return ClusterState(
        settings=rules.allocation,
        queue=SchedulingQueue(clock=clock, first_backoff=1.0, longest_backoff=1.0),
        clock=clock,
        names=rules.names,
        has_queue=not rules.extender,
        scores_resources=_weights(rules).node_resources > 0,
        network_levels=rules.network_levels,
        foreign_drivers=rules.dra.foreign_drivers,
    )


def read(session: Session, rules: Rules) -> ClusterState:
    """Read the cluster and return the state that a long-running scheduler has.

    Pods without a node are read only if there are GpuQueues, which determine their order.

    Raises:
        CommandError: an object may not be read, or Tranche is not installed.
    """
    client, clock = session.client, _Clock()
    statuses = gpu_node_statuses(client)
    state = empty(rules, clock)
    now = time.time() + client.clock_ahead
    # A single read has to compare clocks: the agents', which wrote the times of renewal, with the API server's.
    for lease in client.list(LEASES, Lease, namespace=SYSTEM_NAMESPACE):
        clock.now = min(lease.spec.renewed_at, now)
        state.set_lease(lease)
    clock.now = now - GRACE_SECONDS - 1  # the grace period for missing Leases is over
    _read_tenants(session, state)
    for node in client.list(NODES, NodeWithImages if _weights(rules).image_locality else Node):
        state.set_node(node)
    for status in statuses:
        state.set_status(status)
    for claim in gpu_claims.read(client):
        state.set_claim(claim)
    _read_bindings(session, state)
    if rules.dra.foreign_drivers:
        _read_foreign_devices(session, state)
    clock.now = now
    if state.has_queue:
        _read_storage(session, state)
    for pod in client.list(PODS, Pod, field_selector=UNFINISHED if state.fair_share.queues else LIVE):
        state.set_pod(pod)
    return state


def read_priority_classes(session: Session, state: ClusterState) -> None:
    """Read what gives planned pods their priority; pods that exist have theirs.

    Raises:
        MissingRightError: they may not be read.
    """
    for priority_class in session.client.list(PRIORITY_CLASSES, PriorityClass):
        state.priority_classes.set(priority_class)


def read_budgets(session: Session) -> DisruptionBudgets:
    """Return the PodDisruptionBudgets; if they may not be read, note that preemption is shown without them."""
    budgets = DisruptionBudgets()
    try:
        for budget in session.client.list(POD_DISRUPTION_BUDGETS, PodDisruptionBudget):
            budgets.set(budget)
    except MissingRightError as error:
        note(f"{error.cause}: what preemption would do is shown as if there were no PodDisruptionBudgets")
    return budgets


def _weights(rules: Rules) -> ScoreWeights:
    """Return the weights that count; in extender mode kube-scheduler has its own."""
    return NO_PREFERENCES if rules.extender else rules.weights


def _read_foreign_devices(session: Session, state: ClusterState) -> None:
    """Read what other DRA drivers have allocated; most clusters have none, and old ones do not know the kinds."""
    client, devices = session.client, state.foreign_devices
    try:
        for each in client.list(RESOURCE_SLICES, ResourceSlice):
            devices.set_slice(each)
        for claim in client.list(RESOURCE_CLAIMS, ResourceClaim):
            devices.set_claim(claim)
    except NotFoundError:
        pass
    except MissingRightError as error:
        note(f"{error.cause}: cards that other DRA drivers have allocated are shown as free")


def _read_tenants(session: Session, state: ClusterState) -> None:
    """Read the namespaces, and what limits and orders their pods."""
    client = session.client
    for namespace in client.list(NAMESPACES, Namespace):
        state.set_namespace(namespace)
    for quota in client.list(RESOURCE_QUOTAS, ResourceQuota):
        state.set_quota(quota)
    for gpu_quota in own_kinds.read_if_possible(client, GPU_QUOTAS, GpuQuota):
        state.set_gpu_quota(gpu_quota)
    for queue in own_kinds.read_if_possible(client, GPU_QUEUES, GpuQueue):
        state.set_queue(queue)


def _read_bindings(session: Session, state: ClusterState) -> None:
    """Read the GPUBindings if they count; without the setting the cluster need not define them."""
    if state.bindings.is_on:
        for binding in session.client.list(GPU_BINDINGS, GpuBinding):
            state.set_binding(binding)


def _read_storage(session: Session, state: ClusterState) -> None:
    """Read the storage objects, which the scheduler evaluates in loop mode only."""
    client, storage = session.client, state.storage
    for storage_class in client.list(STORAGE_CLASSES, StorageClass):
        storage.set_class(storage_class)
    for driver in client.list(CSI_DRIVERS, CsiDriver):
        storage.set_driver(driver)
    for csi_node in client.list(CSI_NODES, CsiNode):
        storage.set_csi_node(csi_node)
    for capacity in client.list(CSI_STORAGE_CAPACITIES, StorageCapacity):
        storage.set_capacity(capacity)
    for volume in client.list(PERSISTENT_VOLUMES, PersistentVolume):
        storage.set_volume(volume)
    for attachment in client.list(VOLUME_ATTACHMENTS, VolumeAttachment):
        storage.set_attachment(attachment)
    for claim in client.list(PERSISTENT_VOLUME_CLAIMS, Claim):
        storage.set_claim(claim)
