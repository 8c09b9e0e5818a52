"""Reconciles the MIG instances of one node with the scheduler's requests.

`spec.migInstances` of the GpuNodeStatus lists the requests, `status.migInstances` those that the agent has accepted or
refused. The agent publishes a request in the status before it creates the instance, so that after a crash at any point
the next agent knows which instances it owns. An instance that is in no list belongs to an administrator and is never
touched. As long as `spec` has no list, nothing is destroyed.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from agent.inventory import InventorySource, MigInstanceError
from agent.report import NodeReport
from allocation.inventory import Card
from allocation.mig import InstanceRequest
from cluster.gpu_node_status import Status
from cluster.mig_status import InstanceRequestStatus

log = logging.getLogger(__name__)

_LONGEST_MESSAGE: Final = 1024


class InstanceReconciler:
    """The requests of one node, their status, and which statuses the API server has.

    Attributes:
        is_ready: whether the requests that an earlier process accepted are known.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._requests: tuple[InstanceRequest, ...] | None = None
        self._statuses: dict[str, InstanceRequestStatus] = {}
        self._published: frozenset[str] = frozenset()
        self.is_ready = False

    def restore(self, status: Status | None) -> None:
        """Restore the statuses that an earlier process wrote."""
        if status is not None and status.mig_instances is not msgspec.UNSET:
            self._statuses = {each.id: each for each in status.mig_instances}
        self._published = frozenset(self._statuses)
        self.is_ready = True

    def set_requests(self, requests: tuple[InstanceRequest, ...] | None) -> bool:
        """Replace the scheduler's requests, None if it has not written any; return whether they changed."""
        has_changed = requests != self._requests
        self._requests = requests
        return has_changed

    def set_published(self, report: NodeReport) -> bool:
        """Record that the API server has `report`; return whether an instance may be created now."""
        ids = frozenset(each.id for each in report.mig_instances)
        has_new = not ids <= self._published
        self._published = ids
        return has_new

    def reconcile(self, source: InventorySource, report: NodeReport) -> bool:
        """Accept requests, and create and destroy instances; return whether the cards of `report` have changed."""
        if not self.is_ready or self._requests is None or report.problem is not None:
            return False
        existing = _instances(report)
        self._accept({device.card.uuid: device.card for device in report.devices}, existing)
        requested = {request.id for request in self._requests}
        has_changed = False
        for each in tuple(self._statuses.values()):
            if each.id not in requested:
                has_changed |= self._destroy(source, each)
            elif not each.refused and (each.card, each.slices) not in existing and each.id in self._published:
                has_changed |= self._create(source, each)
        return has_changed

    def with_requests(self, report: NodeReport) -> NodeReport:
        """Return `report` with the status of each request, and with the request's ID on its instance."""
        ids = {(each.card, each.slices): each.id for each in self._statuses.values() if not each.refused}
        devices = []
        for device in report.devices:
            instance = device.card.instance
            request_id = ids.get((instance.parent, instance.slices)) if instance is not None and instance.slices else ""
            if instance is not None and request_id:
                instance = msgspec.structs.replace(instance, request_id=request_id)
                card = msgspec.structs.replace(device.card, instance=instance)
                devices.append(msgspec.structs.replace(device, card=card))
            else:
                devices.append(device)
        return msgspec.structs.replace(
            report, devices=tuple(devices), mig_instances=tuple(self._statuses[key] for key in sorted(self._statuses))
        )

    def _accept(self, cards: Mapping[str, Card], existing: frozenset[object]) -> None:
        for request in self._requests or ():
            if request.id in self._statuses:
                continue
            reason = _refusal(request, cards.get(request.card))
            if not reason and (request.card, request.slices) in existing:
                reason = (
                    f"slice {request.slices.start} of card {request.card} has an instance "
                    "that was not created on request"
                )
            self._statuses[request.id] = InstanceRequestStatus(
                request.id, request.card, request.profile, request.slices, reason, refused=bool(reason)
            )
            log.info(
                "MIG instance request %s for %s on card %s of node %s: %s",
                *(request.id, request.profile, request.card, self._node, reason or "accepted"),
                extra={"node": self._node, "request": request.id},
            )

    def _create(self, source: InventorySource, status: InstanceRequestStatus) -> bool:
        try:
            source.create(self._node, status.request)
        except MigInstanceError as error:
            self._set_message(status, str(error))
            return False
        self._log("created", status)
        self._set_message(status, "")
        return True

    def _destroy(self, source: InventorySource, status: InstanceRequestStatus) -> bool:
        if not status.refused:
            try:
                source.destroy(self._node, status.request)
            except MigInstanceError as error:
                self._set_message(status, f"no longer requested, but: {error}")
                return False
            self._log("destroyed", status)
        del self._statuses[status.id]
        return not status.refused

    def _set_message(self, status: InstanceRequestStatus, message: str) -> None:
        message = message[:_LONGEST_MESSAGE]
        if message and message != status.message:
            log.warning(
                "MIG instance request %s on node %s: %s",
                *(status.id, self._node, message),
                extra={"node": self._node, "request": status.id},
            )
        self._statuses[status.id] = msgspec.structs.replace(status, message=message)

    def _log(self, verb: str, status: InstanceRequestStatus) -> None:
        log.info(
            "%s MIG instance %s on card %s of node %s for request %s",
            *(verb, status.profile, status.card, self._node, status.id),
            extra={"node": self._node, "request": status.id},
        )


def _instances(report: NodeReport) -> frozenset[object]:
    """Return card and slices of each existing instance."""
    instances = [device.card.instance for device in report.devices]
    return frozenset((each.parent, each.slices) for each in instances if each is not None)


def _refusal(request: InstanceRequest, card: Card | None) -> str:
    """Return the reason why the instance cannot be created, or an empty string."""
    if card is None:
        return f"the node has no card {request.card}"
    if card.instances_by != "agent" or not card.is_mig_enabled:
        return f"card {request.card} is not in MIG mode with instances that the agent creates"
    placements = [place for each in card.mig_profiles if each.name == request.profile for place in each.placements]
    if request.slices not in placements:
        return f"card {request.card} has no placement of profile {request.profile} at slice {request.slices.start}"
    return ""
