"""Counts how many more pods of a shape fit: copies of a pod get nodes one after the other until one gets none.

They are scheduled in the state itself, as the pods of a gang are (`scheduler.state.trial`), so each counts against
quotas, nodes and cards as a pod does that is created; then all are forgotten. No other decision and no other inquiry
may run between the steps (`ClusterState.alone`). Pods that wait already do not count: those of the shape that are
created now may come after them.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

import msgspec

from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.quota import UNLIMITED
from allocation.steps import Steps
from scheduler.api.capacity_types import PlaceCount, ShapeCapacity
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.trial import Trial

MOST_COPIES: Final = 1_000
"""The most pods that the scheduler counts for a request: nothing else is decided meanwhile."""
MOST_SECONDS: Final = 0.5
"""The time after which the scheduler ends a count."""
_CHANGED: Final = "the cluster changed too often while pods were counted; ask again"
_PREFIX: Final = "copy:"
"""Begins the UIDs of copies, which metrics and views of cards therefore leave out, as all reservations of no pod."""

_serials = itertools.count(1)
"""Number the counts of this process: copies of two counts never have the same UID, so that whatever compares the state
at two moments takes neither for a pod that stays."""


def deadline(clock: Callable[[], float], seconds: float = MOST_SECONDS) -> Callable[[], bool]:
    """Return what returns True from some `seconds` after now on, by `clock`."""
    end = clock() + seconds
    return lambda: clock() >= end


def count(
    cycle: SchedulingCycle, name: str, submitted: SubmittedPod, *, most: int, is_over: Callable[[], bool]
) -> Steps[ShapeCapacity]:
    """Return how many more pods of a shape called `name` fit.

    At most `most` pods are placed, and none after `is_over` returns True; then the count is not exact. Run it within
    `ClusterState.alone`. Afterwards everything is as before.
    """
    state, serial = cycle.state, next(_serials)
    nodes, models = Counter[str](), Counter[str]()
    why, is_exact, is_limited = "", False, False
    with Trial(state) as trial, ExitStack() as uses:
        while nodes.total() < most and not is_over():
            yield
            copy = _copy(submitted.pod, serial, nodes.total())
            trial.add(copy.uid)
            result = yield from cycle.schedule(copy, creates_instances=False)
            if isinstance(result, Scheduled):
                nodes[result.node] += 1
                models[_models(state, result.allocation)] += 1
                state.bindings.set_pod(copy)  # the cards of its application are in use for the next ones
                uses.callback(state.bindings.drop_pod, copy.uid)
                continue
            if result is None:
                why = _CHANGED
                break
            why, is_exact = result.note, True
            is_limited = yield from _fits_without_limits(cycle, copy)
            break
        yield from trial.forget()
    return ShapeCapacity(
        name=name,
        count=nodes.total(),
        is_exact=is_exact,
        models=_counts(models),
        nodes=_counts(nodes),
        why=why,
        is_limited_by_quota=is_limited,
        warnings=(*submitted.warnings, *_assumptions(state, submitted.pod)),
    )


def _copy(pod: Pod, serial: int, number: int) -> Pod:
    """Return another pod like `pod`; the claims that it mounts or names are the same."""
    metadata = msgspec.structs.replace(
        pod.metadata, name=f"{pod.metadata.name}-{number}", uid=f"{_PREFIX}{serial}-{number}"
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _fits_without_limits(cycle: SchedulingCycle, pod: Pod) -> Steps[bool]:
    """Whether a pod that does not fit would if no quota and no limit of its GpuQueue counted."""
    found = cycle.requirements(pod)
    if isinstance(found, Unschedulable) and found.is_held:
        return False
    try:
        requirements = cycle.state.requirements.unlimited(pod)
    except AllocationError:
        return False
    result = yield from cycle.find(pod, requirements, UNLIMITED)
    return isinstance(result, Scheduled)


def _models(state: ClusterState, allocation: Allocation | None) -> str:
    """Return the models of the cards of an allocation."""
    if allocation is None:
        return ""
    uuids = {share.uuid for shares in allocation.containers.values() for share in shares}
    inventory = state.ledger.inventory(allocation.node)
    cards = inventory.cards if inventory is not None else ()
    return ", ".join(sorted({card.model for card in cards if card.uuid in uuids}))


def _counts(found: Counter[str]) -> tuple[PlaceCount, ...]:
    """Return counts, the largest first."""
    return tuple(
        PlaceCount(name, number) for name, number in sorted(found.items(), key=lambda each: (-each[1], each[0]))
    )


def _assumptions(state: ClusterState, pod: Pod) -> Iterable[str]:
    """Yield what the count takes to be different from what would happen."""
    if state.gangs.joined(pod)[0] is not None:
        yield "the pods of a gang get nodes together; they are counted one by one, as if they belonged to no gang"
    if pod.spec.volumes:
        yield "all pods are counted with the volumes of the first one"
