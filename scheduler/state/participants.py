"""The parts of the state that count pods with a node: they count a pod in order, and forget it in the reverse order.

These are kube-scheduler's Reserve and Unreserve. A part that needs another one comes after it. ClusterState has the
list of all participants (`scheduler.state.cluster_state`).
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from allocation.allocation import Allocation, Charge
from allocation.ledger.ledger import Ledger
from scheduler.fairness.fair_share import FairShare
from scheduler.filters.node_cache import NodeCache
from scheduler.leases.device_lease import LeasedPod
from scheduler.leases.device_leases import DeviceLeases
from scheduler.mig.requests import InstanceRequests
from scheduler.objects import Pod
from scheduler.state.quotas import Quotas
from scheduler.volumes.bindings import NO_BINDINGS, VolumeBindings
from scheduler.volumes.volume_cache import VolumeCache


class Placed(msgspec.Struct, frozen=True):
    """A pod with a node.

    Attributes:
        pod: the pod.
        node: the node.
        allocation: its cards; None if it has none.
        charges: what they cost each card.
        volumes: what has to be written for its unbound claims.
        is_assumed: whether a decision places it there, and the API server does not show it there yet.
    """

    pod: Pod
    node: str
    allocation: Allocation | None = None
    charges: tuple[Charge, ...] = ()
    volumes: VolumeBindings = NO_BINDINGS
    is_assumed: bool = False


class Participant(Protocol):
    """A part of the state that counts pods with a node."""

    def reserve(self, placed: Placed) -> None:
        """Count a pod; if it is counted already, as it is now."""

    def unreserve(self, uid: str) -> None:
        """Count a pod no more: nothing of it is left. Ignore a pod that is not counted."""


class Participants:
    """All participants, in order."""

    def __init__(self, *participants: Participant) -> None:
        self._participants = participants

    def __iter__(self) -> Iterator[Participant]:
        """Iterate over the participants in their order."""
        return iter(self._participants)

    def reserve(self, placed: Placed) -> None:
        """Count a pod with all participants, or, if one of them raises an error, with none.

        Raises:
            AllocationError: the pod is assumed, but holds cards already, or its cards are not free.
        """
        for position, each in enumerate(self._participants):
            try:
                each.reserve(placed)
            except Exception:
                self._unreserve(placed.pod.uid, self._participants[:position])
                raise

    def unreserve(self, uid: str) -> None:
        """Count a pod with none of the participants any more."""
        self._unreserve(uid, self._participants)

    @staticmethod
    def _unreserve(uid: str, participants: tuple[Participant, ...]) -> None:
        for each in reversed(participants):
            each.unreserve(uid)


class Cards:
    """The cards in the ledger; their holders decide which cards Leases close, and which MIG instances are kept."""

    def __init__(self, ledger: Ledger, device_leases: DeviceLeases, instance_requests: InstanceRequests) -> None:
        self._ledger = ledger
        self._device_leases = device_leases
        self._instance_requests = instance_requests

    def reserve(self, placed: Placed) -> None:
        """See Participant; an assumed pod gets only cards that are free."""
        if placed.allocation is None:
            return
        reserve = self._ledger.assume if placed.is_assumed else self._ledger.record
        reserve(placed.pod.uid, placed.node, placed.charges)
        self._refresh(placed.pod.uid)

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._ledger.release(uid)
        self._refresh(uid)

    def _refresh(self, uid: str) -> None:
        self._device_leases.refresh(uid)
        self._instance_requests.refresh(uid)


class NamespaceQuotas:
    """The quotas of namespaces, which limit pods with cards."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def reserve(self, placed: Placed) -> None:
        """See Participant."""
        if placed.allocation is not None:
            self._quotas.add_pod(placed.pod.uid, placed.pod.metadata.namespace)

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._quotas.remove_pod(uid)


class NodeResources:
    """The CPU, memory, ports and neighbours of pods."""

    def __init__(self, node_cache: NodeCache) -> None:
        self._node_cache = node_cache

    def reserve(self, placed: Placed) -> None:
        """See Participant."""
        self._node_cache.add_pod(placed.pod, placed.node, assumed=placed.is_assumed)

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._node_cache.remove_pod(uid)


class Volumes:
    """The volumes of pods, and what unbound claims get."""

    def __init__(self, volumes: VolumeCache, node_cache: NodeCache) -> None:
        """Count volumes on the nodes where `node_cache`, a participant before this one, counts their pods."""
        self._volumes = volumes
        self._node_cache = node_cache

    def reserve(self, placed: Placed) -> None:
        """See Participant."""
        if placed.pod.spec.volumes:
            self._volumes.add_pod(placed.pod, placed.node, placed.volumes)

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._volumes.remove_pod(uid, self._node_cache.node_of(uid))


class QueueShares:
    """The shares of queues, which pay for their pods: of others only for those with cards."""

    def __init__(self, fair_share: FairShare, is_ours: Callable[[Pod], bool]) -> None:
        self._fair_share = fair_share
        self._is_ours = is_ours

    def reserve(self, placed: Placed) -> None:
        """See Participant."""
        if placed.allocation is not None or self._is_ours(placed.pod):
            self._fair_share.add_pod(placed.pod)

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._fair_share.remove_pod(uid)


class CardLeases:
    """The running pods that must hold a Lease for each card; before a pod runs, its Binding acquires them."""

    def __init__(self, device_leases: DeviceLeases) -> None:
        self._device_leases = device_leases

    def reserve(self, placed: Placed) -> None:
        """See Participant."""
        if placed.allocation is not None and not placed.is_assumed:
            meta = placed.pod.metadata
            self._device_leases.set_pod(LeasedPod(meta.namespace, meta.name, meta.uid, placed.allocation))

    def unreserve(self, uid: str) -> None:
        """See Participant."""
        self._device_leases.drop_pod(uid)
