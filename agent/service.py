"""The agent's main loop: reads the inventory regularly and on wake-up, and runs one publisher for each node."""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Final

import msgspec

from agent import daemon_call, delivery, fabric, isolation, last_inventory
from agent.delivery import DeliveryPlugin
from agent.dra.node_allocators import NodeAllocators
from agent.instance_reconciler import InstanceReconciler
from agent.inventory import InventoryError, InventorySource
from agent.metrics import Metrics
from agent.publishing.published_state import Node, observe, read_status
from agent.publishing.publisher import Publisher
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from agent.threadsafe_event import ThreadsafeEvent
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.gpu_node_status import Spec, Status

log = logging.getLogger(__name__)

_CONCURRENT_PUBLISHERS: Final = 32
_RESTORE_RETRY_SECONDS: Final = 1.0


class Agent:
    """Serves every node of its source. Nodes are independent: the failure of one does not affect the others."""

    def __init__(
        self,
        api: Api,
        *,
        source: InventorySource,
        node: str,
        settings: AgentSettings,
        identity: str,
        metrics: Metrics,
        wakeup: ThreadsafeEvent,
        allocators: NodeAllocators,
        plugin: DeliveryPlugin | None = None,
    ) -> None:
        """Serve `node`, or every node of the source if it is empty; `wakeup` triggers a reading.

        `allocators` say who gives out the cards. `plugin` delivers cards, if the agent does so itself.
        """
        self._api = api
        self._source = source
        self._node = node
        self._settings = settings
        self._wakeup = wakeup
        self._allocators = allocators
        self._plugin = plugin
        self._identity = identity
        self._metrics = metrics
        self._limit = asyncio.Semaphore(_CONCURRENT_PUBLISHERS)
        self._publishers: dict[str, Publisher] = {}
        self._reconcilers: dict[str, InstanceReconciler] = {}
        self._last_devices: dict[str, tuple[DeviceReport, ...]] = {}
        """What an earlier process published of nodes whose cards this one has not read yet."""
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._unrestored: set[str] = set()
        """The nodes that are not served yet, because what an earlier process published of them was not read."""
        self._started = False

    def unpublished(self) -> list[str] | None:
        """Return the nodes whose present inventory the API server does not have, or None before the first reading."""
        if not self._started:
            return None
        waiting = {node for node, publisher in self._publishers.items() if not publisher.is_current}
        return sorted(waiting | self._unrestored)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            InventoryError: the first reading failed, so there is nothing to serve. When a later reading fails, the
                previous one remains published.
        """
        reports = await self._read()
        failure = ""
        async with asyncio.TaskGroup() as group:
            watch = observe(
                self._api,
                node=self._node,
                on_node=self._on_node,
                on_status=self._on_status,
                on_spec=self._on_spec,
            )
            group.create_task(watch, name="watch of published objects")
            if self._plugin is not None:
                group.create_task(self._plugin.run(), name="plugin that delivers cards")
            while True:
                self._publish(await self._restored(reports), group)
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
                        log.error("inventory not read: %s; the last reading stays published", failure)  # noqa: TRY400 -- no traceback: the message says all

    async def _read(self) -> Mapping[str, NodeReport]:
        def read() -> dict[str, NodeReport]:
            is_registered = None if self._plugin is None else self._plugin.is_registered
            own_delivery = delivery.find(self._settings, is_registered=is_registered)
            own_fabric = fabric.find(self._settings)
            with self._metrics.inventory_seconds.time():
                reports = self._source.read()
            changes = [self._reconciler(node).reconcile(self._source, report) for node, report in reports.items()]
            if any(changes):
                reports = self._source.read()
            return {
                node: msgspec.structs.replace(
                    self._reconciler(node).with_requests(report),
                    isolation=report.isolation
                    or isolation.find(self._settings, driver_version=report.driver_version, delivery=own_delivery),
                    delivery=report.delivery or own_delivery,
                    fabric=report.fabric or own_fabric,
                )
                for node, report in reports.items()
            }

        reports = await asyncio.wrap_future(daemon_call.start(read, name="inventory"))
        for report in reports.values():
            if report.problem is not None and report.problem.state == "DriverMissing":
                self._metrics.inventory_error()
        return reports

    async def _restored(self, reports: Mapping[str, NodeReport]) -> Mapping[str, NodeReport]:
        """Add what only the published status of a node says, before it is overwritten.

        A node whose status cannot be read is left out, and tried again soon.
        """
        ready = {}
        for node, report in reports.items():
            try:
                complete = await self._with_instances(await self._with_devices(report))
                ready[node] = await self._allocators.with_allocator(complete)
            except ClusterError as error:
                log.warning(
                    "node %s is not served yet, because its published status was not read: %s",
                    *(node, error),
                    extra={"node": node},
                )
                asyncio.get_running_loop().call_later(_RESTORE_RETRY_SECONDS, self._wakeup.set)
        self._unrestored = reports.keys() - ready.keys() - self._publishers.keys()
        return ready

    async def _with_devices(self, report: NodeReport) -> NodeReport:
        """Return the report of a node whose driver is gone with the cards that an earlier process read."""
        if report.problem is None:
            self._last_devices.pop(report.node, None)
        elif not report.devices:
            if report.node not in self._last_devices:
                devices = last_inventory.devices_of(await read_status(self._api, report.node))
                self._last_devices[report.node] = devices
                log.warning(
                    "node %s: %s; the %d cards that it had last stay published as unhealthy",
                    *(report.node, report.problem, len(devices)),
                    extra={"node": report.node},
                )
            return last_inventory.with_last(report, self._last_devices[report.node])
        return report

    async def _with_instances(self, report: NodeReport) -> NodeReport:
        """Return the report with the status of the MIG instances that an earlier process created."""
        reconciler = self._reconciler(report.node)
        if reconciler.is_ready or not report.creates_instances:
            return report
        reconciler.restore(await read_status(self._api, report.node))
        self._wakeup.set()  # requested instances may be created from now on
        return reconciler.with_requests(report)

    def _reconciler(self, node: str) -> InstanceReconciler:
        return self._reconcilers.setdefault(node, InstanceReconciler(node))

    def _on_spec(self, node: str, spec: Spec) -> None:
        self._allocators.wake(node)
        if self._reconciler(node).set_requests(spec.mig_instances):
            self._wakeup.set()

    def _on_published(self, report: NodeReport) -> None:
        self._allocators.set_published(report)
        if self._reconciler(report.node).set_published(report):
            self._wakeup.set()

    def _on_node(self, name: str, node: Node | None) -> None:
        self._allocators.set_node(name, node)
        if publisher := self._publishers.get(name):
            publisher.observe_register(None if node is None else node.register)

    def _on_status(self, node: str, status: Status | None) -> None:
        if publisher := self._publishers.get(node):
            publisher.observe_status(status)

    def _publish(self, reports: Mapping[str, NodeReport], group: asyncio.TaskGroup) -> None:
        for node in self._publishers.keys() - reports.keys():
            del self._publishers[node]
            for task in self._tasks.pop(node):
                task.cancel()
            self._allocators.forget(node)
            self._metrics.forget(node)
            log.info("node %s is no longer served", node, extra={"node": node})
        for node, report in reports.items():
            self._metrics.inventory(report)
            if self._plugin is not None:
                self._plugin.set_report(report)
            publisher = self._publishers.get(node)
            if publisher is None:
                self._publishers[node] = publisher = Publisher(
                    self._api,
                    report=report,
                    identity=self._identity,
                    lease_seconds=self._settings.heartbeat_lease_seconds,
                    limit=self._limit,
                    metrics=self._metrics,
                    on_published=self._on_published,
                )
                self._tasks[node] = [group.create_task(publisher.run(), name=f"publisher of {node}")]
                if self._allocators.is_needed(node):
                    changing = self._allocators.of(node).run()
                    self._tasks[node].append(group.create_task(changing, name=f"allocator of {node}"))
            else:
                publisher.set_report(report)
