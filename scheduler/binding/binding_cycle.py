"""A scheduled pod bound: its Binding is written and recorded, or the failure is handled."""

import logging
from datetime import UTC, datetime

from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.binding.failure_handler import FailureHandler
from scheduler.binding.plugin_binder import PluginBinder
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod

log = logging.getLogger(__name__)


class BindingCycle:
    """Binds what the loop and `/bind` scheduled."""

    def __init__(self, *, binder: PluginBinder, failures: FailureHandler, recorder: Recorder, metrics: Metrics) -> None:
        self._binder = binder
        self._failures = failures
        self._recorder = recorder
        self._metrics = metrics

    def must_wait_for_node(self, chosen: Scheduled) -> bool:
        """Whether binding has to wait for the lock of the node, which may take long."""
        return self._binder.must_wait_for_node(chosen)

    async def run(self, pod: Pod, chosen: Scheduled) -> Result:
        """Bind `pod` as it was scheduled; return once the outcome is known and, if it failed, all is released."""
        with self._metrics.bind_seconds.time(), self._recorder.ahead():
            result = await self._binder.bind(pod, chosen)
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
