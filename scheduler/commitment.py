"""A decision carried out: its Binding written and told, or, where that will never be, given back."""

import logging
from datetime import UTC, datetime

from cluster.events import Recorder
from scheduler import cycle
from scheduler.binder import Outcome, Result
from scheduler.cycle import Chosen
from scheduler.metrics import Metrics
from scheduler.objects import Pod
from scheduler.plugin_binder import PluginBinder
from scheduler.queue import Cure
from scheduler.state import State

log = logging.getLogger(__name__)


class Committer:
    """Writes decisions of the loop and of `/bind` alike."""

    def __init__(self, *, state: State, binder: PluginBinder, recorder: Recorder, metrics: Metrics) -> None:
        self._state = state
        self._binder = binder
        self._recorder = recorder
        self._metrics = metrics

    def queues(self, chosen: Chosen) -> bool:
        """Whether a decision has to wait for its node, which may take long."""
        return self._binder.queues(chosen)

    async def commit(self, pod: Pod, chosen: Chosen) -> Result:
        """Bind `pod` as it was decided; returns once the outcome is known and, if it failed, all is given back."""
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
        log.warning(
            "pod %s was not bound to %s: %s: %s",
            pod,
            chosen.node,
            result.outcome.value,
            result.note,
            extra=_fields(pod, chosen, result),
        )
        cycle.undo(self._state, pod)
        self._state.queue.wake(Cure.CAPACITY)
        if result.outcome is Outcome.REFUSED:
            self._recorder.record(
                pod.reference, type="Warning", reason="BindingFailed", action="Binding", note=result.note
            )
        return result


def _fields(pod: Pod, chosen: Chosen, result: Result) -> dict[str, str]:
    return {"pod": str(pod), "uid": pod.uid, "outcome": result.outcome.value, "node": chosen.node}


def _age_seconds(pod: Pod) -> float:
    """Answer how old a pod is, by the API server's clock at its creation and ours now: never less than nothing."""
    created = datetime.fromisoformat(pod.metadata.creation_timestamp or datetime.now(UTC).isoformat())
    return max(0.0, (datetime.now(UTC) - created).total_seconds())
