"""Which GpuQueue of a higher tier a pod waits for; the scheduler knows by the pods that it could not place."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.steps import finish
from scheduler.api.explanation_types import Explanation
from scheduler.api.queue_explanation import waits_for
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Unschedulable
from scheduler.queue.queue_order import WaitingDemand

_EVALUATED: Final = 50
"""How many waiting pods of higher tiers are evaluated; one that waits for cards to become free suffices to block."""
_WAITING: Final = ("fits", "waits")


def with_blocker(cycle: SchedulingCycle, explained: Explanation) -> Explanation:
    """Add the GpuQueue of a higher tier that the pod waits for, found by a dry run of the pods that come first."""
    queue = explained.gpu_queue
    if queue is None or explained.outcome not in _WAITING:
        return explained
    key = QueueKey.of_annotation(queue.name)
    blocker = waits_for(cycle.state, key, _demands(cycle, above=queue.priority))
    return msgspec.structs.replace(explained, gpu_queue=msgspec.structs.replace(queue, waits_for=blocker))


def _demands(cycle: SchedulingCycle, *, above: int) -> Iterator[WaitingDemand]:
    """Yield what the pods of higher tiers require that wait for cards or nodes to become free."""
    queues = cycle.state.fair_share.queues
    first = (entry for entry in cycle.state.queue.in_order() if queues.spec(entry.key).priority > above)
    for entry in islice(first, _EVALUATED):
        result = finish(cycle.dry_run(entry.pod)).result
        if isinstance(result, Unschedulable) and result.demand is not None:
            yield WaitingDemand(entry.key, result.demand, 1)
