"""Requests for MIG instances: which agent must create which instance, for which pod, and until when.

The truth is in the API server, and each term reads it again: a request is an entry in `spec.migInstances` of the node's
GpuNodeStatus, the instance that was created for it has the ID of the request, and the pod waits or holds the instance.
Only this pod may use the instance: the ledger reserves it until the pod is bound, and again after the pod was deleted
until the agent has destroyed the instance.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from allocation.allocation import Charge
from allocation.inventory import Card
from allocation.ledger.ledger import INSTANCE_PREFIX, Ledger, Reservation
from allocation.mig import InstanceRequest, Slices
from allocation.placement.mig_plan import Plan
from cluster.gpu_node_status import GpuNodeStatus

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0


class _OpenRequest(msgspec.Struct):
    """A request, and when it is given up if the pod still waits."""

    request: InstanceRequest
    deadline: float


class Due(msgspec.Struct, frozen=True):
    """The list that must be written to a node's `spec.migInstances`; `version` is the last known one of the object."""

    node: str
    version: str
    requests: tuple[InstanceRequest, ...]


class InstanceRequests:
    """The requests to the agents of all nodes, and which of them must be written."""

    def __init__(
        self, *, ledger: Ledger, is_waiting: Callable[[str], bool], clock: Callable[[], float], seconds: float
    ) -> None:
        """Give up requests whose pods did not use them within `seconds`; `is_waiting` knows the pods without a node."""
        self._ledger = ledger
        self._is_waiting = is_waiting
        self._clock = clock
        self._seconds = seconds
        self._open: defaultdict[str, dict[str, _OpenRequest]] = defaultdict(dict)
        self._nodes_of_pods: defaultdict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, tuple[str, tuple[InstanceRequest, ...] | None]] = {}
        self._reported: dict[str, frozenset[str]] = {}
        self._given_up: set[str] = set()
        self._holding: set[str] = set()
        self._cooling_down: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of open requests."""
        return sum(map(len, self._open.values()))

    # ---- queries ---------------------------------------------------------------------------------------------------

    def of_pod(self, uid: str) -> list[tuple[str, InstanceRequest]]:
        """Return the requests for a pod, each with its node."""
        requests = [
            (node, each.request)
            for node in self._nodes_of_pods.get(uid, ())
            for each in self._open.get(node, {}).values()
            if each.request.pod_uid == uid
        ]
        if not requests:
            self._nodes_of_pods.pop(uid, None)
        return requests

    def requested_slices(self) -> Mapping[str, list[Slices]]:
        """Return the slices that are requested, by card."""
        slices: defaultdict[str, list[Slices]] = defaultdict(list)
        for requests in self._open.values():
            for each in requests.values():
                slices[each.request.card].append(each.request.slices)
        return slices

    def cooling_down(self) -> set[str]:
        """Return the cards that get no requests for some time, because one on them was given up."""
        now = self._clock()
        self._cooling_down = {card: until for card, until in self._cooling_down.items() if until > now}
        return set(self._cooling_down)

    # ---- changes ---------------------------------------------------------------------------------------------------

    def set_status(self, status: GpuNodeStatus) -> None:
        """Set the GpuNodeStatus of a node; the ledger must already have its cards."""
        node = status.metadata.name
        mig_instances = status.status.mig_instances if status.status is not None else msgspec.UNSET
        reported = () if mig_instances is msgspec.UNSET else mig_instances
        instances = self._instances(node)
        self._seen[node] = (status.metadata.resource_version, status.spec.mig_instances)
        self._reported[node] = frozenset(each.id for each in reported) | instances.keys()
        if instances:
            self._holding.add(node)
        for request in status.spec.mig_instances or ():
            known = self._open[node]  # creates the entry, so that `due` removes requests that no pod needs
            if request.id not in known and request.id not in self._given_up:
                self._request(node, request)
        for each in reported:
            if each.message and each.id in self._open[node] and each.id not in instances:
                log.warning("node %s does not create an instance for request %s: %s", node, each.id, each.message)
                self._give_up(node, each.request)
        self._refresh(node)

    def drop_status(self, node: str) -> None:
        """Forget the GpuNodeStatus of a node, because it was deleted."""
        self._seen.pop(node, None)
        self._reported.pop(node, None)
        self._refresh(node)

    def add(self, uid: str, plan: Plan) -> None:
        """Request the instances of a plan for the pod with `uid`."""
        ids = {each.id for _, each in self.of_pod(uid)}.union(self._given_up, *self._reported.values())
        serial = 1 + max((int(each.rpartition("/")[2]) for each in ids if each.rpartition("/")[0] == uid), default=-1)
        for number, new in enumerate(plan.instances, serial):
            request = InstanceRequest(f"{uid}/{number}", new.card, new.profile, new.slices)
            self._request(plan.node, request)
        self._changed.set()

    def _request(self, node: str, request: InstanceRequest) -> None:
        self._open[node][request.id] = _OpenRequest(request, self._clock() + self._seconds)
        self._nodes_of_pods[request.pod_uid].add(node)

    def reserved_for(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the reservations that keep the instances which were created for a pod."""
        if uid not in self._nodes_of_pods:
            return frozenset()
        uids = (INSTANCE_PREFIX + request.id for _, request in self.of_pod(uid))
        return frozenset(uid for uid in uids if self._ledger.reservation(uid) is not None)

    def release_reserved(self, uid: str) -> None:
        """Release the instances that are kept for a pod, which reserves its cards now; `refresh` has to follow."""
        for reservation in self.reserved_for(uid):
            self._ledger.release(reservation)

    def refresh(self, uid: str) -> None:
        """Hold or release the instances of a pod that was scheduled, bound or deleted."""
        for node in {node for node, _ in self.of_pod(uid)}:
            self._refresh(node)

    # ---- writes ----------------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Wait until something may have to be written, or a request may have expired."""
        try:
            is_timed = any(self._open.values()) or self._cooling_down
            async with asyncio.timeout(_TICK_SECONDS if is_timed else None):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def due(self) -> list[Due]:
        """Drop requests that are not needed any more; return the writes for nodes whose objects have other requests.

        All pods must be known. Nodes without a GpuNodeStatus are skipped.
        """
        writes = []
        for node in sorted({*self._open, *self._holding}):
            instances = self._instances(node)
            self._recover(node, instances)
            requests = self._open[node]
            for each in tuple(requests.values()):
                if not self._is_needed(node, each, instances.get(each.request.id)):
                    requests.pop(each.request.id, None)
            if node not in self._seen:
                continue
            self._hold(node)
            version, written = self._seen[node]
            needed = tuple(requests[name].request for name in sorted(requests))
            # An agent destroys nothing while the list is missing, so even an empty one is written.
            is_missing = written is None and bool(instances)
            if is_missing or needed != tuple(sorted(written or (), key=lambda request: request.id)):
                writes.append(Due(node, version, needed))
            elif not requests:
                del self._open[node]
        return writes

    def mark_written(self, due: Due) -> None:
        """Note that the API server has accepted a write, unless the watch has already shown a newer version."""
        seen = self._seen.get(due.node)
        if seen is not None and seen[0] == due.version:
            self._seen[due.node] = (due.version, due.requests)

    def retry(self) -> None:
        """Note that a write failed, so that it is due again."""
        self._changed.set()

    def _recover(self, node: str, instances: Mapping[str, Card]) -> None:
        """Request instances again that pods hold and no list contains, because the object was deleted.

        Only reservations of pods count: what an agent alone claims about its instances must not affect any pod.
        """
        for name, card in instances.items():
            reservation = self._ledger.reservation(name.rpartition("/")[0])
            instance = card.instance
            if name in self._open[node] or reservation is None or instance is None or instance.slices is None:
                continue
            if any(charge.uuid == card.uuid for charge in reservation.charges):
                self._request(node, InstanceRequest(name, instance.parent, instance.profile, instance.slices))

    def _is_needed(self, node: str, each: _OpenRequest, card: Card | None) -> bool:
        request = each.request
        reservation = self._ledger.reservation(request.pod_uid)
        if reservation is not None:
            return reservation.node == node and self._is_used(request, reservation, card)
        if not self._is_waiting(request.pod_uid):
            return False
        if self._clock() >= each.deadline:
            log.warning("node %s: request %s is given up: not used within %g s", node, request.id, self._seconds)
            self._give_up(node, request)
            return False
        return True

    def _is_used(self, request: InstanceRequest, reservation: Reservation, card: Card | None) -> bool:
        """Whether a pod holds the instance of its request, or holds one that is not reported now and may return."""
        if card is not None and any(charge.uuid == card.uuid for charge in reservation.charges):
            return True
        parts = (charge for charge in reservation.charges if charge.parent == request.card)
        return any(self._ledger.position(charge.uuid) is None for charge in parts)

    def _give_up(self, node: str, request: InstanceRequest) -> None:
        self._open[node].pop(request.id, None)
        self._given_up.add(request.id)
        self._cooling_down[request.card] = self._clock() + self._seconds

    # ---- the instances ---------------------------------------------------------------------------------------------

    def _refresh(self, node: str) -> None:
        if node in self._open or node in self._holding:
            self._hold(node)
            self._changed.set()

    def _hold(self, node: str) -> None:
        """Reserve every instance that was created for a pod, unless the pod itself holds it."""
        instances = self._instances(node)
        if instances:
            self._holding.add(node)
        else:
            self._holding.discard(node)
        for reservation in tuple(self._ledger.reservations(node)):
            uid = reservation.uid
            if uid.startswith(INSTANCE_PREFIX) and uid.removeprefix(INSTANCE_PREFIX) not in instances:
                self._ledger.release(reservation.uid)
        for name, card in instances.items():
            owner = self._ledger.reservation(name.rpartition("/")[0])
            if owner is not None and any(charge.uuid == card.uuid for charge in owner.charges):
                self._ledger.release(INSTANCE_PREFIX + name)
            else:
                charge = Charge(card.uuid, card.memory_mib, card.cores, 1, card.parent)
                self._ledger.record(INSTANCE_PREFIX + name, node, (charge,))

    def _instances(self, node: str) -> dict[str, Card]:
        """Return the instances that were created for requests, by the IDs of the requests."""
        inventory = self._ledger.inventory(node) if node in self._ledger.mig_nodes else None
        cards = inventory.cards if inventory is not None else ()
        instances = ((card.instance, card) for card in cards)
        return {each.request_id: card for each, card in instances if each is not None and each.request_id}
