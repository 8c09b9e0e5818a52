"""Which queue of a higher tier the others wait for, compared with what is desired for every queue."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.fairness.desired import Demand, desired, is_short, precedence
from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import NOTHING, Amounts, added
from scheduler.queue.queue_order import WaitingDemand
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, state
from tests.scheduler.support.driving import gpu_queue

NAMESPACE = QueueKey(namespace="default")
"""Has pods, and no GpuQueue: it is of tier 0."""
UNKNOWN = QueueKey("unknown")
KEYS = (QueueKey("a"), QueueKey("b"), QueueKey("c"), QueueKey("d"), NAMESPACE, UNKNOWN)
SPECS = st.fixed_dictionaries(
    {"priority": st.integers(-2, 2)}, optional={"maxInstances": st.integers(0, 2), "batchSize": st.integers(1, 2)}
)
WAITING = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(st.integers(1, 3), st.integers(1, 400)).map(
        lambda each: WaitingDemand((each[0] * each[1], 0, each[0], 0, 0, 0), each[0])
    ),
)


def blockers(made: ClusterState, key: QueueKey, waiting: dict[QueueKey, WaitingDemand]) -> list[QueueKey]:
    """Return all queues of higher tiers that have less than is desired, the first one first."""
    share = made.fair_share
    tier, of, demands = share.queues.spec(key).priority, dict[QueueKey, Amounts](), list[tuple[Any, Demand]]()
    for each in {*waiting, *share.use}:
        spec, use, queue = share.queues.spec(each), share.use.of(each), share.queues.get(each)
        of[each] = use.amounts
        if spec.priority > tier:
            more = waiting.get(each, WaitingDemand(NOTHING, 0))
            demand = Demand(each, spec, added(use.amounts, more.amounts), use.pods + more.pods)
            created = (queue.metadata.creation_timestamp or "") if queue is not None else ""
            demands.append((precedence(each, spec, created), demand))
    granted = desired([each for _, each in sorted(demands, key=lambda pair: pair[0])], share.capacity.total())
    return [each for each, grant in granted if each in waiting and is_short(of[each], grant)]


@given(
    st.tuples(SPECS, SPECS, SPECS, SPECS),
    st.lists(st.tuples(st.sampled_from("abcd"), SPECS | st.none()), max_size=4),
    st.lists(st.sampled_from(("a", "b", "c", "d", "")), max_size=8),
    WAITING,
)
def test_the_first_queue_that_is_short_is_found_without_computing_what_the_others_are_desired(
    specs: tuple[dict[str, Any], ...],
    changes: list[tuple[str, dict[str, Any] | None]],
    running: list[str],
    waiting: dict[QueueKey, WaitingDemand],
) -> None:
    """After each change of a GpuQueue, for every queue."""
    made = state("n0")
    for number, queue in enumerate(running):
        labels = {names.QUEUE: queue} if queue else {}
        made.set_pod(allocated(f"p{number}", node="n0", memory=50, labels=labels))
    for name, spec in (*zip("abcd", specs, strict=True), *changes):
        made.limits.drop_queue(gpu_queue(name)) if spec is None else made.limits.set_queue(gpu_queue(name, **spec))
        for key in KEYS:
            every = blockers(made, key, waiting) if made.fair_share.queues else []
            assert made.fair_share.blocker(key, waiting) == (every[0] if every else None)
