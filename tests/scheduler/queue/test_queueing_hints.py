"""An event makes the pods active whose reasons it can lift, and no others."""

import asyncio
import random
from itertools import product
from typing import Any

import msgspec

from allocation.names import CORDON
from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.queue.entry import Rejected
from scheduler.queue.queueing_hints import ANY_EVENT, LIFTED_BY, ClusterEvent, events_for
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState
from scheduler.state.collector import CODES
from tests.scheduler.support.builders import Clock, lease, namespace, pod
from tests.scheduler.support.order import NoOrder
from tests.scheduler.support.scheduling import cycle_of, schedule
from tests.scheduler.support.worlds import World, bound
from tests.support.cases import case
from tests.support.depth import repetitions

SEEDS = range(repetitions(24, 60))
STEPS = 25
WAITING = 8


def test_every_reason_has_a_hint() -> None:
    """A new reason needs an entry in the table."""
    assert set(LIFTED_BY) == set(CODES)


async def is_popped(queue: SchedulingQueue) -> bool:
    """Whether a pod is due now."""
    popping = asyncio.create_task(queue.pop())
    for _ in range(5):
        await asyncio.sleep(0)
    done = popping.done()
    popping.cancel()
    return done


async def test_an_event_makes_a_pod_active_only_if_it_can_lift_its_reason() -> None:
    """For each pair of reason and event."""
    for reason, event in product(LIFTED_BY, ClusterEvent):
        with case(reason=reason, event=event):
            queue = SchedulingQueue(NoOrder(), clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
            queue.add(pod("a"))
            queue.add_unschedulable(await queue.pop(), Rejected(reason, frozenset({reason})))
            assert not await is_popped(queue)
            queue.notify(event)
            assert await is_popped(queue) == bool(event & LIFTED_BY[reason])


def test_a_pod_waits_for_the_events_of_all_its_reasons() -> None:
    """Any of the nodes may become free; if the reasons are unknown, any event may help."""
    both = events_for(frozenset({"CardTypeMismatch", "NodeTainted"}))
    assert set(both) == {ClusterEvent.CARDS_CHANGED, ClusterEvent.NODE_CHANGED}
    assert set(events_for(frozenset())) == set(ANY_EVENT)


async def test_equal_pods_share_the_hint_of_the_last_that_was_tried() -> None:
    """One of them is tried for all, even after a result without reasons."""
    queue = SchedulingQueue(NoOrder(), clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
    for name in ("a", "b"):
        queue.add(pod(name))
        queue.add_unschedulable(
            await queue.pop(), Rejected("full", frozenset({"CardInsufficientMemory"}), kind="equal")
        )
    queue.notify(ClusterEvent.NODE_CHANGED)
    assert not await is_popped(queue)
    queue.notify(ClusterEvent.POD_REMOVED)
    queue.add_unschedulable(await queue.pop(), Rejected("", frozenset(), kind="equal"))
    assert not await is_popped(queue)
    queue.notify(ClusterEvent.NODE_CHANGED)
    assert await is_popped(queue)


class History:
    """A random world that records the events of which the queue is notified."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.state: ClusterState = self.world.state
        self.events = ClusterEvent(0)
        self.nodes = {name: self.state.node_cache.nodes[name] for name in self.state.node_cache.names}
        self.statuses: dict[str, Any] = {}
        self.running: list[Pod] = []
        notify = self.state.queue.notify

        def note(events: ClusterEvent) -> None:
            self.events |= events
            notify(events)

        self.state.queue.notify = note  # type: ignore[method-assign]

    def step(self) -> None:
        """Make one random change."""
        chance, state = self.chance, self.state
        name = chance.choice(sorted(self.nodes))
        old = self.nodes[name]
        match chance.randrange(9):
            case 0:
                self._change_node(name, labels={**old.metadata.labels, "zone": chance.choice("abc")})
            case 1:
                self._change_node(name, annotations={CORDON: chance.choice(("", f"GPU-{name}-0"))})
            case 2:
                spec = {"taints": [], "unschedulable": chance.random() < 0.3}
                self._set_node(name, msgspec.structs.replace(old, spec=msgspec.convert(spec, type(old.spec))))
            case 3:
                allocatable = {**old.status.allocatable, "cpu": chance.choice(("2", "64")), "pods": "110"}
                self._set_node(
                    name,
                    msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, allocatable=allocatable)),
                )
            case 4:
                report = self.world.status(name)
                state.agent_reports.set(report, self.statuses.get(name))
                self.statuses[name] = report
            case 5:
                self.world.clock.now += chance.choice((10, 70))
                state.set_lease(lease(name, renewed=f"2026-01-01T02:00:{chance.random()}Z"))
            case 6:
                state.limits.set_quota(self.world.quota())
            case 7:
                state.limits.set_namespace(namespace("team", team=chance.choice("ab")), namespace("team"))
            case _:
                if self.running and chance.random() < 0.7:
                    state.drop_pod(self.running.pop(chance.randrange(len(self.running))))
                else:
                    self._run(self.world.pod())

    def _change_node(self, name: str, **changes: Any) -> None:
        old = self.nodes[name]
        meta = msgspec.structs.replace(old.metadata, **changes)
        self._set_node(name, msgspec.structs.replace(old, metadata=meta))

    def _set_node(self, name: str, new: Any) -> None:
        self.state.set_node(new, self.nodes[name])
        self.nodes[name] = new

    def _run(self, pending: Pod) -> None:
        self.state.set_pod(pending)
        result = finish(schedule(self.state, pending))
        if isinstance(result, Scheduled):
            runs = bound(pending, result)
            self.state.set_pod(runs, pending)
            self.running.append(runs)
        else:
            self.state.drop_pod(pending)


def test_no_pod_becomes_schedulable_without_an_event_of_its_hint() -> None:
    """Over random histories, no node takes a pod for which its hint has not seen an event."""
    for seed in SEEDS:
        with case(seed=seed):
            history = History(seed)
            waiting: dict[str, tuple[Pod, tuple[ClusterEvent, ...]]] = {}
            for _ in range(STEPS):
                while len(waiting) < WAITING:
                    pending = history.world.pod()
                    history.state.set_pod(pending)
                    result = finish(cycle_of(history.state).dry_run(pending)).result
                    if isinstance(result, Scheduled) or result.is_held:
                        history.state.drop_pod(pending)
                        if history.chance.random() < 0.3:
                            history._run(history.world.pod())
                        continue
                    waiting[pending.uid] = (pending, events_for(result.reasons))
                history.events = ClusterEvent(0)
                history.step()
                for pending, hint in tuple(waiting.values()):
                    result = finish(cycle_of(history.state).dry_run(pending)).result
                    if not any(event & history.events for event in hint):
                        assert isinstance(result, Unschedulable), (pending, hint, history.events)
                    if isinstance(result, Scheduled):
                        history.state.drop_pod(pending)
                        del waiting[pending.uid]
                    else:
                        waiting[pending.uid] = (pending, events_for(result.reasons))
