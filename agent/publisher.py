"""One node's publication: what its agent writes to the API server, and when.

The register annotation and the GpuNodeStatus are written at once, and then only when their content changes or somebody
else changed them; the heartbeat is renewed regularly. The annotation comes first, because a Node that does not exist
needs nothing else.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

import msgspec

from agent import heartbeat
from agent.metrics import UNREACHABLE, Metrics
from agent.observation import read_register, read_status, same
from agent.report import NodeReport
from allocation import hami, names
from cluster.api import Api
from cluster.errors import ApiError, ClusterError
from cluster.gpu_node_status import Status
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES

log = logging.getLogger(__name__)

SPEC_MANAGER: Final = "tranche-agent"
STATUS_MANAGER: Final = "tranche-agent-status"
_BACKOFF: Final = (0.5, 30.0)
_RENEWALS_PER_LEASE: Final = 3
_SETTLE_SECONDS: Final = 0.5  # also how often at most we answer somebody who writes against us


class Publisher:
    """Keeps the objects of one node equal to the report that it was last given.

    Attributes:
        node: whose they are.
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
        """Publish `report` first; `limit` is shared by all publishers of a process.

        `on_published` is told each report that the API server has.
        """
        self.node = report.node
        self._api = api
        self._report = report
        self._published: NodeReport | None = None
        self._register: str | None = None
        self._status: Status | None = None
        self._doubted = False
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._limit = limit
        self._metrics = metrics
        self._on_published = on_published
        self._clock = clock
        self._changed = asyncio.Event()

    @property
    def current(self) -> bool:
        """Whether the API server has what we were last given."""
        return self._report == self._published

    def set(self, report: NodeReport) -> None:
        """Take what the node has now; it is written soon, if it differs."""
        if report != self._report:
            self._report = report
            self._changed.set()

    def register_seen(self, register: str | None) -> None:
        """Take what the Node's annotation is, None where there is no Node."""
        if register != self._register:
            self._doubted = True
            self._changed.set()

    def status_seen(self, status: Status | None) -> None:
        """Take what the GpuNodeStatus says, None where there is none."""
        if not same(status, self._status):
            self._doubted = True
            self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled. A failure is logged once, counted each time, and repeated with growing pauses."""
        failure = ""
        backoff = _BACKOFF[0]
        while True:
            self._changed.clear()
            if self._doubted:
                await asyncio.sleep(_SETTLE_SECONDS)
            try:
                async with self._limit:
                    await self._write()
            except ClusterError as error:
                self._metrics.publish_error(error.reason if isinstance(error, ApiError) else UNREACHABLE)
                if str(error) != failure:
                    failure = str(error)
                    log.warning("not published node=%s error=%r; trying again", self.node, failure)
                pause = backoff
                backoff = min(backoff * 2, _BACKOFF[1])
            else:
                failure = ""
                backoff = _BACKOFF[0]
                pause = self._lease_seconds / _RENEWALS_PER_LEASE
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.8, 1.0)):  # noqa: S311 -- jitter, no secret
                    await self._changed.wait()

    async def _write(self) -> None:
        report = self._report
        if self._doubted:
            self._doubted = False
            await self._verify()
        register = hami.encode_register(report.inventory)
        if register != self._register:
            await self._annotate(register)
            self._register = register
        status = report.status()
        if status != self._status:
            await self._tell(status)
            self._status = status
        if report != self._published:
            self._published = report
            self._on_published(report)
            self._metrics.published(self.node, unix=self._clock())
            healthy = sum(device.card.healthy for device in report.devices)
            log.info("published node=%s cards=%d healthy=%d", self.node, len(report.devices), healthy)
        await self._beat()

    async def _verify(self) -> None:
        """Find out whether the API server still has what we wrote; what it has not is forgotten, so it is written."""
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
            log.warning("changed by somebody else, writing again node=%s objects=%s", self.node, ", ".join(changed))

    async def _annotate(self, register: str) -> None:
        body = {"metadata": {"annotations": {names.HAMI_REGISTER: register}}}
        await self._api.merge(NODES, body, name=self.node)

    async def _tell(self, status: Status) -> None:
        """Apply the GpuNodeStatus: it is created with its spec, and its status is a resource of its own."""
        head = {
            "apiVersion": GPU_NODE_STATUSES.api_version,
            "kind": GPU_NODE_STATUSES.kind,
            "metadata": {"name": self.node},
        }
        if self._status is None:
            body = {**head, "spec": {"nodeName": self.node}}
            await self._api.apply(GPU_NODE_STATUSES, body, name=self.node, manager=SPEC_MANAGER)
        answer = await self._api.apply(
            GPU_NODE_STATUSES,
            {**head, "status": status},
            name=self.node,
            manager=STATUS_MANAGER,
            subresource="status",
        )
        await self._expel(msgspec.json.decode(answer), known={device.uuid for device in status.devices})

    async def _expel(self, found: dict[str, Any], *, known: Collection[str]) -> None:
        """Remove devices that are not ours: an apply leaves alone what somebody else added, the ledger would not."""
        devices = found["status"].get("devices", [])
        kept = [device for device in devices if device["uuid"] in known]
        if len(kept) < len(devices):
            body = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "status": {"devices": kept},
            }
            await self._api.merge(GPU_NODE_STATUSES, body, name=self.node, subresource="status")

    async def _beat(self) -> None:
        body = heartbeat.lease(self.node, identity=self._identity, seconds=self._lease_seconds, unix=self._clock())
        await self._api.apply(
            LEASES,
            body,
            name=names.heartbeat_lease(self.node),
            namespace=names.SYSTEM_NAMESPACE,
            manager=SPEC_MANAGER,
        )
        self._metrics.beat(self.node, unix=self._clock())
