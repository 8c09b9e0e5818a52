"""The scheduler of the model: the product's decisions and Bindings, one after another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cluster.events import Recorder
from scheduler.binding.binder import Binder
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.bound_cards_check import BoundCardsCheck
from scheduler.binding.failure_handler import FailureHandler
from scheduler.binding.lease_reconciler import LeaseReconciler
from scheduler.binding.lease_writes import LeaseWrites
from scheduler.cycle.result import Scheduled
from scheduler.gang_scheduling.gang_scheduler import GangScheduler
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.mig.writer import RequestWriter
from scheduler.pacing import Pacer
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.settings import GangSettings
from tests.scheduler.support import leasing
from tests.scheduler.support.driving import DELETED, Driver
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.preemption_scene import rest

if TYPE_CHECKING:
    from scheduler.binding.plugin_binder import PluginBinder
    from scheduler.cycle.result import ScheduleResult
    from scheduler.objects import Pod
    from scheduler.queue.entry import Entry
    from tests.scheduler.model.api import LiveApi

_PATIENCE_S = 60.0
"""No request of the model fails, however busy the machine is."""


class ModelDriver(Driver):
    """Places pods, and writes their Leases and Bindings.

    Attributes:
        recorder: takes the events; they are not written.
        leases: deletes the Leases of pods that have ended.
    """

    def __init__(self, api: LiveApi) -> None:
        super().__init__(api.state)
        self._api = api
        state, metrics, writes = api.state, Metrics(), fenced(api, token=leasing.TOKEN, timeout_seconds=_PATIENCE_S)
        self.recorder = Recorder(api, component="test", instance="test")
        failures = FailureHandler(writes, queue=state.queue, cycle=self.cycle, recorder=self.recorder, metrics=metrics)
        self._binding_cycle = BindingCycle(
            binder=cast("PluginBinder", Binder(writes)),
            leases=leasing.keeper(api, state, timeout_seconds=_PATIENCE_S),
            bound_cards=BoundCardsCheck(api, state.settings.bindings),
            claims=state.claims,
            failures=failures,
            recorder=self.recorder,
            metrics=metrics,
        )
        self._gangs = GangScheduler(
            self.cycle,
            binding_cycle=self._binding_cycle,
            failures=failures,
            recorder=self.recorder,
            metrics=metrics,
            settings=GangSettings(),
            concurrent_binds=4,
            is_trusted=lambda: True,
        )
        self._instances = RequestWriter(
            writes,
            requests=state.instance_requests,
            on_cooled_down=lambda: state.queue.notify(ClusterEvent.CARDS_CHANGED),
        )
        self.leases = LeaseReconciler(
            writes,
            LeaseWrites(writes, leases=state.device_leases),
            leases=state.device_leases,
            heartbeats=state.agent_leases,
            has_node=lambda name: name in state.node_cache,
            inventory_of=state.ledger.inventory,
        )

    def schedule(self, entry: Entry) -> ScheduleResult | None:
        """Choose a node, as the explanation of the same moment says."""
        said = explained(self.state, entry.pod)
        result = super().schedule(entry)
        if isinstance(result, Scheduled):
            cards = result.allocation.containers if result.allocation is not None else {}
            chosen = {(name, share.uuid, share.memory_mib) for name, shares in cards.items() for share in shares}
            shown = {(share.container, share.uuid, share.memory_mib) for share in said.shares}
            assert (said.outcome, said.node, shown) == ("fits", result.node, chosen)
        elif result is not None:
            assert said.outcome == ("held" if result.is_held else "waits"), (said, result)
            assert result.note in ("", said.note)
        return result

    async def request_instances(self) -> None:
        """Write what is requested of agents."""
        writing = asyncio.create_task(self._instances.run())
        await rest()
        writing.cancel()

    async def decide(self, entry: Entry) -> None:
        """Schedule a pod that was popped, or its whole gang."""
        gang = self._gangs.gang_of(entry.pod)
        if gang is None:
            await super().decide(entry)
            return
        scheduled = await self._gangs.schedule(gang, entry, Pacer())
        if scheduled is None:
            return
        await self._gangs.bind(scheduled)
        for member, _ in scheduled.members:
            name = member.pod.metadata.name
            self.running[name] = self._shown(member.pod)
            self.order.append(name)

    async def bind(self, pending: Pod, chosen: Scheduled) -> Pod:
        """Bind a pod; nothing changes meanwhile, so there is no reason for a refusal."""
        result = await self._binding_cycle.run(pending, chosen)
        assert result.outcome is Outcome.BOUND, result
        return self._shown(pending)

    def begin_to_end(self, name: str) -> None:
        """See Driver."""
        meta = self.running[name].metadata
        manifest = self._api.get_object("pods", name, meta.namespace)
        self._api.put("pods", {**manifest, "metadata": {**manifest["metadata"], "deletionTimestamp": DELETED}})
        self.running[name] = self._shown(self.running[name])

    def end(self, name: str) -> None:
        """See Driver."""
        self._api.remove("pods", name, self.running.pop(name).metadata.namespace)

    def _shown(self, pod: Pod) -> Pod:
        shown: Pod = self._api.shown("pods", pod.metadata.name, pod.metadata.namespace)
        return shown
