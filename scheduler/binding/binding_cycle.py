"""A scheduled pod bound: its volumes and Leases, a look at its GPUBindings, its Binding; or the failure is handled."""

import logging
from datetime import UTC, datetime

from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.binding.bound_cards_check import BoundCardsCheck
from scheduler.binding.failure_handler import FailureHandler
from scheduler.binding.lease_keeper import LeaseKeeper
from scheduler.binding.plugin_binder import PluginBinder
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.claims.claims import Claims
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod

log = logging.getLogger(__name__)


class BindingCycle:
    """Binds what the loop and `/bind` scheduled."""

    def __init__(
        self,
        *,
        binder: PluginBinder,
        leases: LeaseKeeper,
        failures: FailureHandler,
        recorder: Recorder,
        metrics: Metrics,
        bound_cards: BoundCardsCheck | None = None,
        volumes: VolumeBinder | None = None,
        claims: Claims | None = None,
    ) -> None:
        """Bind with `binder`, after `volumes`; in extender mode it is None: there kube-scheduler binds the volumes.

        `bound_cards` confirms what GPUBindings give; `claims` are notified of what is reserved for their pods.
        """
        self._binder = binder
        self._leases = leases
        self._bound_cards = bound_cards
        self._volumes = volumes
        self._claims = claims
        self._failures = failures
        self._recorder = recorder
        self._metrics = metrics

    def may_take_long(self, chosen: Scheduled) -> bool:
        """Whether the pod has to wait before its Binding: for its volumes, or for the lock of its node."""
        return bool(chosen.volumes) or self._binder.needs_lock(chosen)

    async def run(self, pod: Pod, chosen: Scheduled) -> Result:
        """Bind `pod` as it was scheduled; return once the outcome is known and, if it failed, all is released."""
        failure = await self.prepare(pod, chosen)
        if failure is None:
            result = await self.write(pod, chosen)
            return await self.finish(pod, chosen, result)
        return self.end(pod, chosen, failure)

    async def prepare(self, pod: Pod, chosen: Scheduled) -> Result | None:
        """Return None once a pod has what its Binding needs, or the result if it does not get that.

        In that case nothing is left of what was written for it.
        """
        without_volumes = await self._volumes.bind(pod, chosen) if self._volumes is not None else None
        if without_volumes is not None:
            return without_volumes
        without_leases = await self._leases.acquire(pod, chosen)
        if without_leases is not None:
            return without_leases
        without_cards = await self._bound_cards.confirm(pod, chosen) if self._bound_cards is not None else None
        if without_cards is not None:
            await self._leases.release(pod, chosen)
        return without_cards

    async def rehearse(self, pod: Pod, chosen: Scheduled) -> str:
        """Return why the API server would refuse the Binding of a pod that is prepared; empty if it would not."""
        return await self._binder.rehearse(pod, chosen)

    async def write(self, pod: Pod, chosen: Scheduled) -> Result:
        """Write the Binding of a pod that is prepared; return once its outcome is known."""
        if self._claims is not None and chosen.allocation is not None:
            self._claims.set_reserved(pod.uid, chosen.allocation)
        with self._metrics.bind_seconds.time(), self._recorder.ahead():
            return await self._binder.bind(pod, chosen)

    async def finish(self, pod: Pod, chosen: Scheduled, result: Result) -> Result:
        """Release what was prepared for a pod unless it is bound, and handle the failure; return the result."""
        if result.outcome is not Outcome.BOUND:
            await self._leases.release(pod, chosen)
        return self.end(pod, chosen, result)

    def end(self, pod: Pod, chosen: Scheduled, result: Result) -> Result:
        """Report the result of a pod for which nothing has to be released at the API server, and handle its failure."""
        self._metrics.decisions.labels(result.outcome.value).inc()
        if result.outcome is Outcome.BOUND:
            self._metrics.created_to_bound_seconds.observe(_age_seconds(pod))
            log.info("pod %s is bound to %s: %s", pod, chosen.node, chosen.note, extra=_fields(pod, chosen, result))
            self._recorder.record(
                pod.reference, type="Normal", reason="FilteringSucceed", action="Scheduling", note=chosen.note
            )
            return result
        self._failures.not_bound(pod, chosen, result)
        return result


def _fields(pod: Pod, chosen: Scheduled, result: Result) -> dict[str, str]:
    return {"pod": str(pod), "uid": pod.uid, "outcome": result.outcome.value, "node": chosen.node}


def _age_seconds(pod: Pod) -> float:
    """Return the age of a pod, at least 0: its creation by the API server's clock, now by the clock of this machine."""
    created = datetime.fromisoformat(pod.metadata.creation_timestamp or datetime.now(UTC).isoformat())
    return max(0.0, (datetime.now(UTC) - created).total_seconds())
