"""The agent at work: it reads the inventory, regularly and when it is woken, and runs one publisher for each node."""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Final

import msgspec

from agent import background, isolation
from agent.inventory import InventoryError, InventorySource
from agent.metrics import Metrics
from agent.observation import observe, read_status
from agent.partitions import Partitions
from agent.publisher import Publisher
from agent.report import NodeReport
from agent.settings import AgentSettings
from agent.wakeup import Wakeup
from allocation.mig import Wish
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.gpu_node_status import Status

log = logging.getLogger(__name__)

_CONCURRENT_PUBLISHERS: Final = 32
_RECALL_SECONDS: Final = 1.0


class Agent:
    """Every node that a source knows, each served on its own: the failure of one does not touch the others."""

    def __init__(
        self,
        api: Api,
        *,
        source: InventorySource,
        node: str,
        settings: AgentSettings,
        identity: str,
        metrics: Metrics,
        wakeup: Wakeup,
    ) -> None:
        """Serve `node`, or every node that the source knows where it is empty; `wakeup` asks for a reading."""
        self._api = api
        self._source = source
        self._node = node
        self._settings = settings
        self._wakeup = wakeup
        self._identity = identity
        self._metrics = metrics
        self._limit = asyncio.Semaphore(_CONCURRENT_PUBLISHERS)
        self._publishers: dict[str, Publisher] = {}
        self._partitions: dict[str, Partitions] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False

    def waiting(self) -> list[str] | None:
        """Answer the nodes whose inventory the API server does not have yet, None before the first reading."""
        if not self._started:
            return None
        return sorted(node for node, publisher in self._publishers.items() if not publisher.current)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            InventoryError: the very first reading failed, so there is nothing to serve. Later on, what was read last
                stays true.
        """
        reports = await self._read()
        failure = ""
        async with asyncio.TaskGroup() as group:
            watch = observe(
                self._api,
                node=self._node,
                on_register=self._register_seen,
                on_status=self._status_seen,
                on_wishes=self._wishes_seen,
            )
            group.create_task(watch, name="watch of what is published")
            while True:
                self._take(await self._recalled(reports), group)
                self._started = True
                pause = self._settings.publish_seconds * random.uniform(0.9, 1.0)  # noqa: S311 -- jitter, no secret
                await self._wakeup.wait(pause)
                try:
                    reports = await self._read()
                    failure = ""
                except InventoryError as error:
                    self._metrics.inventory_error()
                    if str(error) != failure:
                        failure = str(error)
                        log.error("inventory not read, the last one stays error=%r", failure)  # noqa: TRY400 -- the message says all

    async def _read(self) -> Mapping[str, NodeReport]:
        def read() -> dict[str, NodeReport]:
            offered = isolation.backends(self._settings)
            with self._metrics.inventory_seconds.time():
                reports = self._source.read()
            steps = [self._partitions_of(node).step(self._source, report) for node, report in reports.items()]
            if any(steps):
                reports = self._source.read()
            return {
                node: msgspec.structs.replace(self._partitions_of(node).mark(report), isolation=offered)
                for node, report in reports.items()
            }

        return await asyncio.wrap_future(background.start(read, name="inventory"))

    async def _recalled(self, reports: Mapping[str, NodeReport]) -> Mapping[str, NodeReport]:
        """Find out what an earlier process has accepted, before anything is written over it.

        A node of which that is not known yet is left out and looked at again.
        """
        ready = dict(reports)
        for node, report in reports.items():
            partitions = self._partitions_of(node)
            if partitions.is_ready or not report.is_dividing:
                continue
            try:
                partitions.recall(await read_status(self._api, node))
            except ClusterError as error:
                log.warning("what was published before is not known yet node=%s error=%r", node, str(error))
                del ready[node]
                asyncio.get_running_loop().call_later(_RECALL_SECONDS, self._wakeup.ring)
            else:
                ready[node] = partitions.mark(report)
                self._wakeup.ring()  # what is wanted may be made now
        return ready

    def _partitions_of(self, node: str) -> Partitions:
        return self._partitions.setdefault(node, Partitions(node))

    def _wishes_seen(self, node: str, wishes: tuple[Wish, ...] | None) -> None:
        if self._partitions_of(node).want(wishes):
            self._wakeup.ring()

    def _has_published(self, report: NodeReport) -> None:
        if self._partitions_of(report.node).announced(report):
            self._wakeup.ring()

    def _register_seen(self, node: str, register: str | None) -> None:
        if publisher := self._publishers.get(node):
            publisher.register_seen(register)

    def _status_seen(self, node: str, status: Status | None) -> None:
        if publisher := self._publishers.get(node):
            publisher.status_seen(status)

    def _take(self, reports: Mapping[str, NodeReport], group: asyncio.TaskGroup) -> None:
        for node in self._publishers.keys() - reports.keys():
            del self._publishers[node]
            self._tasks.pop(node).cancel()
            self._metrics.forget(node)
            log.info("served no longer node=%s", node)
        for node, report in reports.items():
            self._metrics.inventory(report)
            publisher = self._publishers.get(node)
            if publisher is None:
                self._publishers[node] = publisher = Publisher(
                    self._api,
                    report=report,
                    identity=self._identity,
                    lease_seconds=self._settings.heartbeat_lease_seconds,
                    limit=self._limit,
                    metrics=self._metrics,
                    on_published=self._has_published,
                )
                self._tasks[node] = group.create_task(publisher.run(), name=f"publisher of {node}")
            else:
                publisher.set(report)
