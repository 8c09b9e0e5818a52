"""Patience: a pod that needs much is not kept waiting for ever by a stream of pods that need little."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest

from allocation.ledger.ledger_copy import used_by_pods
from cluster.metadata import unix_seconds
from scheduler.holds import Hold
from scheduler.patience.patience import Patience
from tests.scheduler.support.builders import Clock, lease, node, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.gang_driving import GangDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocation.steps import Steps
    from scheduler.queue.entry import Entry

PATIENCE = 100.0
IDLE = 60.0
LONGEST = 12
"""Seconds that a slice lasts at most."""


class Notes:
    """Collects the notes of events."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def record(self, *_: object, note: str, **__: object) -> None:
        """Keep the note."""
        self.notes.append(note)


class World:
    """Nodes of two cards, which a stream of slices of a quarter of a card fills all the time."""

    def __init__(self, *nodes: str, patience: float = PATIENCE, slices_in: str = "stream") -> None:
        self.clock, self.events = Clock(), Notes()
        self.driver = GangDriver(state(*nodes, clock=self.clock, unix=self.unix))
        recorder: Any = self.events
        self.patience = Patience(
            self.driver.cycle,
            recorder=recorder,
            patience_seconds=patience,
            idle_seconds=IDLE,
            is_trusted=lambda: True,
        )
        self._slices_in = slices_in
        self._ends: dict[str, float] = {}
        self._numbers = itertools.count()

    def unix(self) -> float:
        """Return Unix seconds by which no pod is older than the world, unless its condition says so."""
        return unix_seconds("2026-01-01T00:00:00Z") - 1000 + self.clock.now

    async def run(self, seconds: int, *, until: Callable[[], bool] = lambda: False) -> float:
        """Let time pass, at most until a condition holds; return how much."""
        begin = self.clock.now
        while self.clock.now < begin + seconds and not until():
            self.clock.now += 1
            for name in self.driver.state.ledger.nodes:
                self.driver.state.set_lease(lease(name, renewed=f"2026-01-01T00:00:00.{int(self.clock.now):06d}Z"))
            for name in [name for name, end in self._ends.items() if end <= self.clock.now]:
                del self._ends[name]
                self.driver.end(name)
                self._begin(await self.driver.settle())
            waiting = sum(self.driver.state.queue.waiting.values())
            for _ in range(4 - waiting):  # there is always a slice that waits
                name = f"slice-{next(self._numbers)}"
                self.driver.add(pod(name, memory=250, namespace=self._slices_in, created="2026-01-02T00:00:00Z"))
            self._begin(await self.driver.settle())
            await self.patience.look()
            self._begin(await self.driver.settle())
        return self.clock.now - begin

    def _begin(self, placed: list[str]) -> None:
        for name in placed:
            if name.startswith("slice"):
                self._ends[name] = self.clock.now + 10 + len(self._ends) % (LONGEST - 9)

    def runs(self, name: str) -> bool:
        """Whether a pod has a node."""
        return name in self.driver.running


def whole(name: str = "whole", **fields: Any) -> Any:
    """Return a pod that needs a whole card, and is younger than every slice."""
    return pod(name, memory=1000, created="2026-01-03T00:00:00Z", **fields)


async def test_a_stream_of_slices_does_not_keep_a_whole_card_waiting_for_ever() -> None:
    """It gets the card after its patience and the longest slice, and then nothing is held any more."""
    world = World("n0")
    await world.run(20)
    world.driver.add(whole())
    waited = await world.run(300, until=lambda: world.runs("whole"))
    assert world.runs("whole")
    assert PATIENCE <= waited <= PATIENCE + LONGEST + 2
    assert world.events.notes[0] == "after 100 s, reserving GPU-n0-1 on node n0 until 4 pods finish"
    assert not world.driver.state.holds
    assert all(each.is_pod for each in world.driver.state.ledger.reservations())


async def test_without_patience_it_waits() -> None:
    """The stream is such that the pod above would wait as long as anybody looks."""
    world = World("n0", patience=0)
    await world.run(20)
    world.driver.add(whole())
    await world.run(400)
    assert not world.runs("whole")


async def test_a_queue_sets_its_own_patience() -> None:
    """A GpuQueue may be more patient than the scheduler's setting, or less."""
    world = World("n0")
    world.driver.state.limits.set_queue(gpu_queue("quick", patienceSeconds=20))
    await world.run(20)
    world.driver.add(whole(labels={"gpu.scheduling/queue": "quick"}))
    waited = await world.run(300, until=lambda: world.runs("whole"))
    assert 20 <= waited <= 20 + LONGEST + 2


async def test_slices_go_on_beside_the_held_card() -> None:
    """Only the cards that the pod will get are held: the other card of the node is full all the time."""
    world = World("n0")
    await world.run(20)
    world.driver.add(whole())
    await world.run(200, until=lambda: bool(world.driver.state.holds))
    (hold,) = world.driver.state.holds
    free = ({charge.uuid for charge in hold.charges} ^ {"GPU-n0-0", "GPU-n0-1"}).pop()
    while world.driver.state.holds:
        await world.run(1)
        used = used_by_pods(world.driver.state.ledger, "n0")[0]
        assert used[int(free[-1])] == 1000


async def test_a_pod_of_higher_priority_takes_what_is_held() -> None:
    """The hold ends with that, and a new one begins: the pod is still served before the stream."""
    world = World("n0")
    await world.run(20)
    world.driver.add(whole())
    await world.run(200, until=lambda: bool(world.driver.state.holds))
    held_at = world.clock.now
    world.driver.add(pod("urgent", memory=250, priority=1000))
    await world.run(30, until=lambda: world.runs("urgent"))
    assert world.clock.now - held_at <= LONGEST
    await world.run(60, until=lambda: world.runs("whole"))
    assert world.runs("whole")


@pytest.mark.parametrize("priority", [0, -5])
async def test_no_pod_of_equal_or_lower_priority_takes_what_is_held(priority: int) -> None:
    """However small it is, and however empty the held card."""
    world = World("n0")
    await world.run(20)
    world.driver.add(whole())
    await world.run(200, until=lambda: bool(world.driver.state.holds))
    (hold,) = world.driver.state.holds
    (card,) = (charge.uuid for charge in hold.charges)
    world.driver.add(pod("small", memory=100, priority=priority, annotations={"nvidia.com/use-gpuuuid": card}))
    await world.run(60, until=lambda: world.runs("small") or world.runs("whole"))
    assert world.runs("whole")
    assert not world.runs("small")


async def test_a_queue_holds_cards_for_one_pod_at_a_time() -> None:
    """And a small cluster for one pod over all queues."""
    world = World("n0", "n1")
    await world.run(20)
    for number in range(3):
        world.driver.add(whole(f"whole-{number}", namespace=f"team-{number}"))
    for _ in range(120):
        await world.run(1)
        assert len(world.driver.state.holds) <= 1


@pytest.mark.parametrize("what", ["deleted", "cordoned"])
async def test_a_hold_ends_with_its_pod_or_its_node(what: str) -> None:
    """Nothing is held for a pod that is gone, or on a node that takes no pods."""
    world = World("n0")
    await world.run(20)
    asking = whole()
    world.driver.add(asking)
    await world.run(200, until=lambda: bool(world.driver.state.holds))
    if what == "deleted":
        world.driver.state.drop_pod(asking)
    else:
        world.driver.state.set_node(node("n0", spec={"unschedulable": True}))
        await world.patience.look()
    assert not world.driver.state.holds
    assert all(each.is_pod for each in world.driver.state.ledger.reservations())


async def test_nothing_is_held_for_a_pod_that_no_node_can_take() -> None:
    """It requests more memory than any card has."""
    world = World("n0")
    await world.run(20)
    world.driver.add(pod("hopeless", memory=2000))
    await world.run(150)
    assert not world.driver.state.holds
    assert not any("hopeless" in note for note in world.events.notes)


async def test_a_nomination_does_not_take_the_place_of_a_hold() -> None:
    """A small fleet has one hold at a time, and a pod that preempts others elsewhere is not one that has waited."""
    world = World("n0", "n1")
    state_ = world.driver.state
    await world.run(20)
    nominee = pod("nominee", memory=0)
    key = state_.fair_share.key(nominee)
    state_.holds.add(Hold(nominee.uid, key, (0, -1), "n1", (), frozenset(), "preemption"), nominee)
    world.driver.add(whole())
    await world.run(300, until=lambda: world.runs("whole"))
    assert world.runs("whole")
    assert state_.holds.nominations, "the nomination was there all the time"


async def test_a_pod_for_which_others_are_evicted_keeps_what_is_held_for_it() -> None:
    """However long it waits: another hold would take the place of the first, and end what frees its cards."""
    world = await blocked()
    waiting = whole()
    world.driver.add(waiting)
    await world.driver.settle()
    state_ = world.driver.state
    hold = Hold(waiting.uid, state_.fair_share.key(waiting), (0, 0), "n0", (), frozenset(), "consolidation")
    state_.holds.add(hold, waiting)
    await wait(world, 2 * int(PATIENCE))
    assert state_.holds.of(waiting.uid) is hold


async def blocked(*, namespace: str = "team") -> World:
    """Return a node of which two pods that never end each have a card, one of them of team; nothing else is there."""
    world = World("n0")
    world.driver.add(pod("own", memory=1000, namespace=namespace), pod("other", memory=1000, namespace="other"))
    await world.driver.settle()
    return world


async def wait(world: World, seconds: int) -> None:
    """Let time pass, without a stream of slices."""
    for _ in range(seconds):
        world.clock.now += 1
        world.driver.state.set_lease(lease("n0", renewed=f"2026-01-01T00:00:00.{int(world.clock.now):06d}Z"))
        await world.driver.settle()
        await world.patience.look()


async def test_own_pod_that_never_ends_holds_no_cards() -> None:
    """A pod of the same namespace and queue does not count as one that will end; one of another namespace does."""
    world, both = await blocked(), [{"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}} for name in "ab"]
    world.driver.add(pod("whole-node", namespace="team", containers=both))
    await wait(world, int(PATIENCE) + 2)
    assert not world.driver.state.holds
    world.driver.end("own")
    world.driver.add(pod("own", memory=1000, namespace="third"))
    await wait(world, 2)
    assert [hold.uid for hold in world.driver.state.holds] == ["uid-whole-node"]


@pytest.mark.parametrize(("cards", "words"), [(1, "until 1 pod finishes"), (2, "until 2 pods finish")])
async def test_event_counts_the_pods_that_have_to_finish(cards: int, words: str) -> None:
    """It names the cards and the node as well."""
    world = await blocked(namespace="third")
    containers = [{"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}} for name in "ab"[:cards]]
    world.driver.add(pod("waits", namespace="team", containers=containers))
    await wait(world, int(PATIENCE) + 2)
    (note,) = world.events.notes
    assert re.fullmatch(rf"after \d+ s, reserving (GPU-n0-\d(, )?)+ on node n0 {words}", note)


async def test_hold_ends_when_no_awaited_pod_has_ended_for_long() -> None:
    """With each that ends the time begins again; the next queue has its turn, and then the first one again."""
    world = await blocked(namespace="third")
    both = [{"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}} for name in "ab"]
    world.driver.add(pod("first", namespace="team", containers=both))
    await wait(world, 1)
    world.driver.add(pod("second", namespace="next", containers=both))
    await wait(world, int(PATIENCE) + 1)
    held = []
    for seconds in (IDLE - 5, 10, IDLE - 15, 10, PATIENCE):
        held.append([hold.uid for hold in world.driver.state.holds])
        if len(held) == 2:
            world.driver.end("other")
        await wait(world, int(seconds))
    held.append([hold.uid for hold in world.driver.state.holds])
    assert held == [["uid-first"], ["uid-first"], ["uid-first"], ["uid-first"], ["uid-second"], ["uid-first"]]
    assert any("has finished for 60 s" in note for note in world.events.notes)


async def test_held_cards_are_charged_to_the_queue_that_holds() -> None:
    """Its other pods come after those of queues that hold as much less; with the hold, the charge ends."""
    world = World("n0")
    state_ = world.driver.state
    for name in ("a", "b"):
        state_.limits.set_queue(gpu_queue(name))
    await world.run(20)
    a, b = (state_.queue.competition.order.key(whole(labels={"gpu.scheduling/queue": name})) for name in ("a", "b"))
    assert state_.fair_share.rank(a) == state_.fair_share.rank(b)
    asking = whole(labels={"gpu.scheduling/queue": "a"})
    world.driver.add(asking)
    await world.run(200, until=lambda: bool(state_.holds))
    assert state_.fair_share.rank(a) > state_.fair_share.rank(b)
    assert float(state_.fair_share.share(a)) == 0.5
    state_.drop_pod(asking)
    assert state_.fair_share.rank(a) == state_.fair_share.rank(b)


async def test_many_different_pods_are_compared_in_short_steps() -> None:
    """Other work goes on between them; the first pod of their queue is found all the same."""
    world, compared = await blocked(namespace="other"), list[str]()
    world.driver.add(*(pod(f"p{number}", memory=1000 - number, namespace="many") for number in range(300)))
    await world.driver.settle()

    def has_waited(entry: Entry) -> bool:
        compared.append(entry.pod.uid)
        return entry.pod.uid != "uid-p0"

    def find() -> Steps[None]:
        firsts = yield from world.driver.state.queue.competition.demanding(has_waited)
        assert [each.pod.uid for each in firsts] == ["uid-p1"]

    after_each = [0, *(len(compared) for _ in find())]
    assert len(after_each) > 3
    assert max(later - before for before, later in itertools.pairwise(after_each)) <= 128
