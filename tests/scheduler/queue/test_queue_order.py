"""The order of pods of several queues, compared with an order that is found by looking at every pod."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.fairness.queue_spec import QueueKey
from allocation.reasons import CardReason, NodeReason
from scheduler.objects import Pod
from scheduler.queue.entry import Rejected
from scheduler.queue.queue_order import Rank, WaitingDemand
from scheduler.queue.queueing_hints import ClusterEvent, events_for, members
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.support.builders import Clock, pod
from tests.scheduler.support.order import NoOrder
from tests.scheduler.support.popping import due

NAMES = [f"p{number}" for number in range(8)]
QUEUES = ("a", "b", "c")
REASONS = {
    "card": frozenset({CardReason.CardInsufficientMemory.name}),
    "node": frozenset({NodeReason.NodeUnschedulable.name}),
}
EVENTS = (ClusterEvent.POD_REMOVED, ClusterEvent.NODE_CHANGED, ClusterEvent.NAMESPACE_CHANGED)


PODS = st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 3), st.sampled_from(("x", "y")))


@given(st.lists(PODS, max_size=8, unique_by=lambda each: each[0]), st.sets(st.sampled_from(NAMES)))
async def test_without_gpu_queues_priority_and_age_decide(
    pods: list[tuple[str, int, int, str]], removed: set[str]
) -> None:
    """New pods, and rejected ones after an event, of all namespaces together, come in the same order."""
    queue = SchedulingQueue(NoOrder(), clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
    for name, priority, second, namespace in pods:
        queue.add(pod(name, priority=priority, created=f"2026-01-01T00:00:0{second}Z", namespace=namespace))
    for name in removed:
        queue.remove(f"uid-{name}")
    left = [each for each in pods if each[0] not in removed]
    expected = [name for name, *_ in sorted(left, key=lambda each: (-each[1], each[2]))]
    for _ in range(2):
        names = []
        while (entry := await due(queue)) is not None:
            names.append(entry.pod.metadata.name)
            queue.add_unschedulable(entry, Rejected("full", REASONS["card"]))
        assert names == expected
        queue.notify(ClusterEvent.POD_REMOVED)


async def test_a_removed_pod_is_not_next_even_if_its_queue_is_forgotten() -> None:
    """An event that finds a queue without pods takes its last one out of the competition, too."""
    queue = SchedulingQueue(NoOrder(), clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
    queue.add(pod("p"))
    queue.remove("uid-p")
    queue.notify(ClusterEvent.POD_REMOVED)
    assert await due(queue) is None


class Force:
    """The state of queues, which a test sets, and the next pod as looking at every pod finds it."""

    def __init__(self) -> None:
        self.queue = SchedulingQueue(self, clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
        self.ranks: dict[str, Rank] = dict.fromkeys(QUEUES, (0, 0))
        self.named = dict.fromkeys(NAMES, "a")
        self.rejected: dict[str, str] = {}
        """The kind of each unschedulable pod."""
        self.active: set[str] = set()
        self.orders: dict[str, tuple[int, int, int]] = {}
        """Negated priority, age and arrival."""
        self.tried = dict.fromkeys(REASONS, -1)
        self.last: dict[ClusterEvent, int] = {}
        self.events = self.arrivals = 0

    # ---- the order of queues ---------------------------------------------------------------------------------------

    def key(self, pod: Pod) -> QueueKey:
        """See QueueOrder."""
        return QueueKey(self.named[pod.metadata.name])

    def rank(self, key: QueueKey) -> Rank:
        """See QueueOrder."""
        return self.ranks[key.name]

    def is_strict(self, _key: QueueKey) -> bool:
        """See QueueOrder."""
        return False

    def is_blocked(self, _key: QueueKey, _waiting: Mapping[QueueKey, WaitingDemand]) -> bool:
        """See QueueOrder."""
        return False

    # ---- what happens ----------------------------------------------------------------------------------------------

    def add(self, name: str, number: int) -> None:
        """Create a pod, whose priority and age `number` gives."""
        if name not in self.orders:
            priority, second = number % 3, number % 4
            self.arrivals += 1
            self.orders[name] = (-priority, second, self.arrivals)
            self.active.add(name)
            self.queue.add(pod(name, priority=priority, created=f"2026-01-01T00:00:0{second}Z"))

    def remove(self, name: str, _number: int) -> None:
        """Delete a pod."""
        self.orders.pop(name, None)
        self.active.discard(name)
        self.rejected.pop(name, None)
        self.queue.remove(f"uid-{name}")

    def notify(self, _name: str, number: int) -> None:
        """Notify the queue of an event, and count it."""
        event = EVENTS[number % len(EVENTS)]
        self.events += 1
        self.last[event] = self.events
        self.queue.notify(event)

    def charge(self, _name: str, number: int) -> None:
        """Give a queue another share and tier."""
        self.ranks[QUEUES[number % 3]] = (-(number % 2), number * 7 % 11)
        self.queue.rerank(QueueKey(QUEUES[number % 3]))

    def recount(self, _name: str, number: int) -> None:
        """Give all queues other shares."""
        self.ranks = {name: (0, (number + place) * 5 % 7) for place, name in enumerate(QUEUES)}
        self.queue.rerank(None)

    def move(self, name: str, number: int) -> None:
        """Change the queue that a pod belongs to; then it is tried again."""
        if self.named[name] != QUEUES[number % 3]:
            self.named[name] = QUEUES[number % 3]
            if self.rejected.pop(name, None):
                self.active.add(name)
        self.queue.rekey()

    def next(self) -> str | None:
        """Return the pod that is next, or None if none is due."""
        due = self.active | {name for name, kind in self.rejected.items() if self._is_due(kind)}
        return min(due, key=self._offer, default=None)

    def _is_due(self, kind: str) -> bool:
        return any(self.last.get(event, -1) > self.tried[kind] for event in events_for(REASONS[kind]))

    def _offer(self, name: str) -> tuple[int, int, int, int, int]:
        (tier, share), (priority, second, arrival) = self.ranks[self.named[name]], self.orders[name]
        return tier, priority, share, second, arrival

    async def try_next(self, _name: str, number: int) -> None:
        """Pop a pod, which must be the one that is next, and reject it, or give it a node."""
        expected, entry = self.next(), await due(self.queue)
        assert (entry.pod.metadata.name if entry is not None else None) == expected
        if entry is None or expected is None:
            return
        self.active.discard(expected)
        self.rejected.pop(expected, None)
        if number % 4 == 0:
            self.remove(expected, number)
            return
        kind = "node" if number % 4 == 1 else "card"
        self.rejected[expected], self.tried[kind] = kind, self.events
        demand = (1, 2, 3, 0, 4, 5) if number % 4 == 2 else None
        self.queue.add_unschedulable(entry, Rejected("full", REASONS[kind], kind=kind, demand=demand))


STEPS = st.tuples(
    st.sampled_from(("add", "add", "add", "remove", "notify", "charge", "recount", "move", "try", "try", "try", "try")),
    st.sampled_from(NAMES),
    st.integers(0, 30),
)


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=30, max_size=80))
async def test_the_next_pod_is_the_first_of_all_that_are_due(steps: list[tuple[str, str, int]]) -> None:
    """Heaps, lanes and sweeps give the pod that looking at every pod with the ranks of the moment gives."""
    force = Force()
    for what, name, number in steps:
        if what == "try":
            await force.try_next(name, number)
        else:
            getattr(force, what)(name, number)
    while force.next() is not None:
        await force.try_next("", 0)
    assert await due(force.queue) is None


def test_events_of_this_test_lift_the_reasons_that_it_uses() -> None:
    """Otherwise nothing would ever be due again."""
    for reasons in REASONS.values():
        assert set(events_for(reasons)) & set(EVENTS)
    assert all(members(event) == (event,) for event in EVENTS)
