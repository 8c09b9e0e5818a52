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
        result = await self._bind(pod, chosen)
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

    async def _bind(self, pod: Pod, chosen: Scheduled) -> Result:
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
        if self._claims is not None and chosen.allocation is not None:
            self._claims.set_reserved(pod.uid, chosen.allocation)
        with self._metrics.bind_seconds.time(), self._recorder.ahead():
            result = await self._binder.bind(pod, chosen)
        if result.outcome is not Outcome.BOUND:
            await self._leases.release(pod, chosen)
        return result


def _fields(pod: Pod, chosen: Scheduled, result: Result) -> dict[str, str]:
    return {"pod": str(pod), "uid": pod.uid, "outcome": result.outcome.value, "node": chosen.node}


def _age_seconds(pod: Pod) -> float:
    """Return the age of a pod, at least 0: its creation by the API server's clock, now by the clock of this machine."""
    created = datetime.fromisoformat(pod.metadata.creation_timestamp or datetime.now(UTC).isoformat())
    return max(0.0, (datetime.now(UTC) - created).total_seconds())
