"""Publishes one node to the API server.

The publisher writes the register annotation and the GpuNodeStatus at start, and then only when their content changes or
another client has changed them; it renews the heartbeat regularly. It writes the annotation first, because without a
Node the other two are not needed.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from agent.metrics import UNREACHABLE, Metrics
from agent.publishing.published_state import Node, read_register, read_status, same
from agent.report import NodeReport
from allocation import names
from allocation.wire import hami
from cluster.api import Api
from cluster.backoff import Backoff
from cluster.errors import ApiError, ClusterError
from cluster.gpu_node_status import Status
from cluster.lease import LeaseSpec, manifest
from cluster.metadata import micro_time
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES

log = logging.getLogger(__name__)

SPEC_MANAGER: Final = "tranche-agent"
STATUS_MANAGER: Final = "tranche-agent-status"
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_JITTER: Final = (0.8, 1.0)
_RENEWALS_PER_LEASE: Final = 3
_OF_OTHERS: Final = "inUseBy"
_SETTLE_SECONDS: Final = 0.5  # also limits how often the publisher overwrites another writer


class Publisher:
    """Keeps the objects of one node equal to its last report.

    Attributes:
        node: the name of the node.
    """

    def __init__(
        self,
        api: Api,
        *,
        report: NodeReport,
        identity: str,
        lease_seconds: int,
        limit: asyncio.Semaphore,
        metrics: Metrics,
        on_published: Callable[[NodeReport], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Publish `report` first; all publishers of a process share `limit`.

        `on_published` is called with each report that the API server has confirmed.
        """
        self.node = report.node
        self._api = api
        self._report = report
        self._published: NodeReport | None = None
        self._register: str | None = None
        self._status: Status | None = None
        self._must_verify = False
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._limit = limit
        self._metrics = metrics
        self._on_published = on_published
        self._clock = clock
        self._changed = asyncio.Event()

    @property
    def is_current(self) -> bool:
        """Whether the API server has the last report."""
        return self._report == self._published

    def set_report(self, report: NodeReport) -> None:
        """Replace the report; if it differs, it is written soon."""
        if report != self._report:
            self._report = report
            self._changed.set()

    def observe_register(self, register: str | None) -> None:
        """Compare the Node's annotation, or None without a Node, with the last one that was written."""
        if register != self._register:
            self._must_verify = True
            self._changed.set()

    def observe_status(self, status: Status | None) -> None:
        """Compare the status of the GpuNodeStatus, or None without one, with the last one that was written."""
        if not same(status, self._status):
            self._must_verify = True
            self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled. A failure is logged once, counted each time, and retried with back-off."""
        failure = ""
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=_JITTER)
        while True:
            self._changed.clear()
            if self._must_verify:
                await asyncio.sleep(_SETTLE_SECONDS)
            try:
                async with self._limit:
                    await self._write()
            except ClusterError as error:
                self._metrics.publish_error(error.reason if isinstance(error, ApiError) else UNREACHABLE)
                if str(error) != failure:
                    failure = str(error)
                    log.warning(
                        "node %s is not published: %s; trying again", self.node, failure, extra={"node": self.node}
                    )
                pause = backoff.next()
            else:
                failure = ""
                backoff.reset()
                pause = self._lease_seconds / _RENEWALS_PER_LEASE * random.uniform(*_JITTER)  # noqa: S311 -- jitter
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _write(self) -> None:
        report = self._report
        if self._must_verify:
            self._must_verify = False
            await self._verify()
        if self._status is None:
            await self._api.get(NODES, Node, name=self.node)  # without a Node there would be a status for nothing
        status = report.status()
        if status != self._status:
            await self._apply_status(status)
            self._status = status
        # Afterwards: with the annotation alone, and a device plugin, the node would pass for one of HAMi's plugin.
        register = hami.encode_register(report.registered)
        if register != self._register:
            await self._annotate(register)
            self._register = register
        if report != self._published:
            self._published = report
            self._on_published(report)
            self._metrics.published(self.node, unix=self._clock())
            cards, healthy = len(report.devices), sum(device.card.healthy for device in report.devices)
            log.info(
                "node %s is published: %d cards, %d healthy",
                *(self.node, cards, healthy),
                extra={"node": self.node, "cards": cards, "healthy": healthy},
            )
        await self._renew()

    async def _verify(self) -> None:
        """Read what was written; forget what the API server no longer has, so that it is written again."""
        changed = []
        if self._register is not None and await read_register(self._api, self.node) != self._register:
            self._register = None
            changed.append("register annotation")
        if self._status is not None and not same(await read_status(self._api, self.node), self._status):
            self._status = None
            changed.append("GpuNodeStatus")
        if changed:
            self._published = None
            self._metrics.repair()
            log.warning(
                "node %s: another client changed the %s; writing again",
                *(self.node, " and the ".join(changed)),
                extra={"node": self.node},
            )

    async def _annotate(self, register: str) -> None:
        body = {"metadata": {"annotations": {names.HAMI_REGISTER: register}}}
        await self._api.merge(NODES, body, name=self.node)

    async def _apply_status(self, status: Status) -> None:
        """Apply the GpuNodeStatus: creating the object writes its spec, its status is a subresource."""
        head = {
            "apiVersion": GPU_NODE_STATUSES.api_version,
            "kind": GPU_NODE_STATUSES.kind,
            "metadata": {"name": self.node},
        }
        if self._status is None:
            body = {**head, "spec": {"nodeName": self.node}}
            await self._api.apply(GPU_NODE_STATUSES, body, name=self.node, manager=SPEC_MANAGER)
        applied = await self._api.apply(
            GPU_NODE_STATUSES,
            {**head, "status": status},
            name=self.node,
            manager=STATUS_MANAGER,
            subresource="status",
        )
        await self._remove_others(msgspec.json.decode(applied), own=msgspec.to_builtins(status))

    async def _remove_others(self, applied: dict[str, Any], *, own: dict[str, Any]) -> None:
        """Remove what other clients added: an apply keeps it, and the scheduler would use it. `inUseBy` is theirs."""
        status = applied["status"]
        owned = {device["uuid"]: {*device, _OF_OTHERS} for device in own["devices"]}
        devices = [
            {key: value for key, value in device.items() if key in owned[device["uuid"]]}
            for device in status.get("devices", [])
            if device["uuid"] in owned
        ]
        changes: dict[str, Any] = dict.fromkeys(status.keys() - own.keys())
        if devices != status.get("devices", []):
            changes["devices"] = devices
        if changes:
            body = {"metadata": {"resourceVersion": applied["metadata"]["resourceVersion"]}, "status": changes}
            await self._api.merge(GPU_NODE_STATUSES, body, name=self.node, subresource="status")

    async def _renew(self) -> None:
        body = heartbeat(self.node, identity=self._identity, seconds=self._lease_seconds, unix=self._clock())
        await self._api.apply(
            LEASES,
            body,
            name=names.heartbeat_lease(self.node),
            namespace=names.SYSTEM_NAMESPACE,
            manager=SPEC_MANAGER,
        )
        self._metrics.beat(self.node, unix=self._clock())


def heartbeat(node: str, *, identity: str, seconds: int, unix: float) -> dict[str, Any]:
    """Return the Lease in which `identity` vouches at Unix time `unix` for `node`'s cards, for the next `seconds`.

    The scheduler trusts a node's cards only while this Lease is valid. The agent therefore renews it after each
    publication, and never while a publication is outstanding.
    """
    spec = LeaseSpec(holder_identity=identity, lease_duration_seconds=seconds, renew_time=micro_time(unix))
    return manifest(names.heartbeat_lease(node), namespace=names.SYSTEM_NAMESPACE, spec=spec)
