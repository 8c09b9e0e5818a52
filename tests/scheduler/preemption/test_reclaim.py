"""Reclaim: whose pods go so that a queue gets what it is owed, and whose stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.names import ALLOCATION, CLAIM, HAND_OVER_NAME, PREEMPTION_PROTECTION, QUEUE
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.wire.record import encode
from scheduler.holds import Hold
from scheduler.preemption.choice import NoPreemption
from scheduler.preemption.node_search import Preemption
from scheduler.preemption.reclaim import Reclaim
from tests.scheduler.preemption.test_choice import budget
from tests.scheduler.support.builders import allocated, state
from tests.scheduler.support.claims import claim
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.gangs import of_gang
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.preemption_scene import NOW, Scene
from tests.scheduler.support.reclaiming import end_evicted, held, let_run, of_queue, scene_of

if TYPE_CHECKING:
    from scheduler.objects import Pod

EQUAL: dict[str, dict[str, Any]] = {"a": {"reclaim": "WithinTier"}, "b": {}}
WAITING = of_queue("a", "waiting")


def victims(scene: Scene, waiting: Pod) -> set[str]:
    """Return the names of the pods that a waiting pod would preempt."""
    scene.driver.add(waiting)
    found = finish(scene.chooser.choose(waiting))
    return {each.pod.metadata.name for each in found.victims} if isinstance(found, Preemption) else set()


def why_not(scene: Scene, waiting: Pod) -> str:
    """Return why a pod reclaims nothing."""
    requirements = scene.state.requirements.unlimited(waiting)
    found = scene.chooser.eligibility.reclaims.of(waiting, requirements)
    return getattr(found, "why", "it may")


async def test_a_queue_gets_what_it_is_entitled_to_and_no_more() -> None:
    """8 cards at weights 3:1, of which the other queue has all: it ends at 6:2, with six evictions."""
    scene = scene_of("a", cards=8, queues={"a": {"weight": 3, "reclaim": "WithinTier"}, "b": {"reclaim": "Always"}})
    let_run(scene, "b", *range(8))
    scene.driver.add(*(of_queue("a", f"waiting-{number}") for number in range(8)))
    for turn in range(20):
        for each in await end_evicted(scene):
            scene.driver.add(of_queue("b", f"{each.metadata.name}-{turn}"))
        scene.clock.now += 10
    assert held(scene) == {"a": 6, "b": 2}
    assert len(scene.evictor.evicted) == len(set(scene.evictor.evicted)) == 6


@pytest.mark.parametrize("spec", [{}, {"reclaim": "Never"}])
async def test_no_queue_reclaims_unless_it_is_told_to(spec: dict[str, Any]) -> None:
    """Its pods wait until others end, as before."""
    scene = scene_of("a", cards=4, queues={"a": spec, "b": {}})
    let_run(scene, "b", *range(4))
    scene.driver.add(WAITING)
    await scene.look()
    assert scene.evictor.evicted == []
    assert why_not(scene, WAITING) == ""


@pytest.mark.parametrize(("seconds", "evicted"), [(299, 0), (300, 1)])
async def test_a_pod_reclaims_once_it_has_waited(seconds: float, evicted: int) -> None:
    """From its creation, so that a new leader does not begin to count again."""
    created = NOW - 3600  # that of pods of `builders`
    queues = {"a": {"reclaim": "WithinTier", "reclaimAfterSeconds": 300}, "b": {}}
    scene = scene_of("a", cards=4, queues=queues, unix=lambda: created + seconds)
    let_run(scene, "b", *range(4))
    scene.driver.add(WAITING)
    await scene.look()
    assert len(scene.evictor.evicted) == evicted
    if not evicted:
        assert "once it has waited for 1 s more" in why_not(scene, WAITING)


@pytest.mark.parametrize(
    ("reclaim", "spec", "priority", "goes"),
    [
        ("WithinTier", {}, 0, True),
        ("WithinTier", {}, -1, True),
        ("WithinTier", {}, 1, False),
        ("Always", {}, 1, False),
        ("WithinTier", {"priority": 1}, 0, False),
        ("Always", {"priority": 3}, 0, False),
        ("WithinTier", {"priority": 0}, 0, False),
        ("Always", {"priority": 0}, 0, True),
        ("Always", {"priority": 0}, 9, True),
    ],
)
def test_tiers_and_priorities_decide_whose_pods_go(
    reclaim: str, spec: dict[str, int], priority: int, *, goes: bool
) -> None:
    """Only those that would not be offered the cards first, or could not preempt in turn."""
    tier = 2 if spec else 0
    scene = scene_of("a", cards=2, queues={"a": {"reclaim": reclaim, "priority": tier}, "b": spec})
    let_run(scene, "b", 0, 1, priority=priority)
    assert bool(victims(scene, of_queue("a", "waiting", preemptionPolicy="PreemptLowerPriority"))) == goes


def test_the_lowest_priority_goes_first_and_then_the_youngest() -> None:
    """As in any preemption."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    let_run(scene, "b", 0, 1, created="2026-01-01T00:20:00Z")
    let_run(scene, "b", 2, 3, created="2026-01-01T00:10:00Z", priority=-1)
    assert victims(scene, WAITING) <= {"b-2", "b-3"}
    let_run(scene, "b", 3, created="2026-01-01T00:15:00Z", priority=-1)
    assert victims(scene, WAITING) == {"b-3"}


@pytest.mark.parametrize(
    ("annotations", "fields"),
    [
        ({PREEMPTION_PROTECTION: "2h"}, {}),
        ({}, {"namespace": "kube-system"}),
        ({}, {"schedulerName": "other"}),
        ({}, {"labels": {QUEUE: "b", "app": "db"}}),
    ],
    ids=["protected", "of the system", "of another scheduler", "of a budget that allows nothing"],
)
def test_pods_that_nobody_may_preempt_stay(annotations: dict[str, str], fields: dict[str, Any]) -> None:
    """Reclaim respects protection, budgets and namespaces as any preemption does."""
    scene = scene_of("a", cards=2, queues=EQUAL, longest_protection_seconds=7200)
    scene.guard(budget("db", allowed=0, app="db"))
    for card in (0, 1):
        made = allocated(f"b-{card}", node="a", memory=1000, card=card, **{"labels": {QUEUE: "b"}, **fields})
        made.metadata.annotations.update(annotations)
        scene.state.set_pod(made)
    assert victims(scene, WAITING) == set()


def test_the_minimum_runtime_of_a_queue_holds() -> None:
    """A team whose pods need an hour to be of use can say so."""
    scene = scene_of("a", cards=2, queues={**EQUAL, "b": {"preemption": {"minRuntimeSeconds": 7200}}})
    let_run(scene, "b", 0, 1)
    assert victims(scene, WAITING) == set()


def test_a_queue_keeps_its_entitlement() -> None:
    """A pod with three of four cards stays: without it, its queue would have less than its half."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    shares = tuple(CardShare(f"GPU-a-{card}", card, 1000, 0) for card in range(3))
    written = {ALLOCATION: encode(Allocation("a", {"main": shares}))}
    scene.state.set_pod(of_queue("b", "large", node="a", phase="Running", annotations=written))
    let_run(scene, "a", 3)
    assert victims(scene, WAITING) == set()


def test_surplus_is_counted_without_pods_that_end_already() -> None:
    """The pod that a queue has too many ends, so no other goes."""
    scene = scene_of("a", cards=8, queues=EQUAL)
    let_run(scene, "b", *range(5))
    let_run(scene, "a", 5, 6, 7)
    assert victims(scene, WAITING)
    scene.driver.begin_to_end("b-0")
    assert victims(scene, WAITING) == set()
    assert scene.state.fair_share.leaving == {"uid-b-0"}
    reclaim = scene.chooser.eligibility.reclaims.of(WAITING, scene.state.requirements.unlimited(WAITING))
    assert isinstance(reclaim, Reclaim)
    assert not reclaim.has_surplus(QueueKey("b"))
    scene.driver.end("b-0")
    assert scene.state.fair_share.leaving == set()


async def test_two_queues_together_take_no_more_than_the_surplus() -> None:
    """Four queues are entitled to two cards each; of those with three, one's pods are protected."""
    names = ("a1", "a2", "b", "c")
    scene = scene_of("a", cards=8, queues={name: {"reclaim": "WithinTier"} for name in names})
    let_run(scene, "a1", 0)
    let_run(scene, "a2", 1)
    let_run(scene, "b", 2, 3, 4)
    for card in (5, 6, 7):
        made = allocated(f"c-{card}", node="a", memory=1000, card=card, labels={QUEUE: "c"})
        made.metadata.annotations[PREEMPTION_PROTECTION] = "1d"
        scene.state.set_pod(made)
    scene.driver.add(of_queue("a1", "w1"), of_queue("a2", "w2"))
    for _ in range(3):
        await scene.look()
        scene.clock.now += 60
    assert len(scene.evictor.evicted) == 1


async def test_a_queue_reclaims_no_more_than_its_entitlement_at_once() -> None:
    """What is held for its pods counts as theirs."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    let_run(scene, "b", *range(4))
    scene.driver.add(*(of_queue("a", f"w{number}") for number in range(4)))
    for _ in range(3):
        await scene.look()
        scene.clock.now += 60
    assert len(scene.evictor.evicted) == 2
    assert "more than its entitlement" in why_not(scene, of_queue("a", "w3"))


def test_reach_limits_priorities_and_not_reclaim() -> None:
    """A queue may take back what it is owed and leave lower priorities alone."""
    spec = {"reclaim": "WithinTier", "preemption": {"reach": "Never"}}
    scene = scene_of("a", cards=4, queues={"a": spec, "b": {}, "c": {"priority": 0}})
    let_run(scene, "b", 0, 1)
    let_run(scene, "c", 2, priority=-5)
    let_run(scene, "a", 3, priority=-5)
    scene.state.limits.set_queue(gpu_queue("a", **spec, weight=2))
    assert victims(scene, of_queue("a", "waiting", priority=5)) <= {"b-0", "b-1"}
    assert victims(scene, of_queue("a", "waiting", priority=5))
    assert victims(scene, of_queue("a", "waiting", preemptionPolicy="Never")) == set()


def test_a_gang_goes_together_or_not_at_all() -> None:
    """Both of its pods have to be surplus."""
    for members, goes in (((0, 1), True), ((0, 1, 2), False)):
        scene = scene_of("a", cards=8, queues=EQUAL)
        scene.state.set_claim(of_gang(claim("members", exclusivity="Shared"), "training"))
        for card in range(6):
            made = allocated(f"b-{card}", node="a", memory=1000, card=card, labels={QUEUE: "b"}, priority=1)
            if card in members:
                made = allocated(f"b-{card}", node="a", memory=1000, card=card, labels={QUEUE: "b"})
                made.metadata.annotations[CLAIM] = "members"
            scene.state.set_pod(made)
        let_run(scene, "a", 6, 7)
        assert victims(scene, WAITING) == ({f"b-{card}" for card in members} if goes else set())


@pytest.mark.parametrize("has_queue", [True, False])
def test_behind_kube_scheduler_nothing_is_reclaimed(*, has_queue: bool) -> None:
    """It does not offer cards by share, so any pod could get what becomes free."""
    made = state("a", cards=4, has_queue=has_queue)
    for name, spec in EQUAL.items():
        made.limits.set_queue(gpu_queue(name, **spec))
    for card in range(4):
        queue = "b" if card else "a"
        made.set_pod(allocated(f"{queue}-{card}", node="a", memory=1000, card=card, labels={QUEUE: queue}))
    assert isinstance(finish(chooser_of(made).choose(WAITING)), Preemption) == has_queue
    made.settings = AllocationSettings(resource_claims="hand-over")
    spec = msgspec.structs.replace(WAITING.spec, scheduler_name=HAND_OVER_NAME)
    handed_over = msgspec.structs.replace(WAITING, spec=spec)
    assert isinstance(finish(chooser_of(made).choose(handed_over)), NoPreemption)


def test_a_queue_with_its_entitlement_keeps_all_pods() -> None:
    """Also those without which it would still have that: its share is that of CPU, and the pod requests none."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    requests = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}, "requests": {"cpu": "32"}}
    let_run(scene, "b", 0, containers=[{"name": "main", "resources": requests}])
    let_run(scene, "b", 1)
    let_run(scene, "a", 2)
    let_run(scene, "other", 3)
    for queue, weight in (("a", 3), ("b", 4), ("other", 1)):
        scene.state.limits.set_queue(gpu_queue(queue, weight=weight, reclaim="WithinTier"))
    slice_of_card = of_queue("a", "slice", memory=250)
    assert victims(scene, slice_of_card) == set()
    let_run(scene, "b", 3)
    assert victims(scene, slice_of_card)


def test_cards_that_are_held_for_the_pod_itself_do_not_count_twice() -> None:
    """It may have waited for its patience before."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    let_run(scene, "b", *range(3))
    let_run(scene, "a", 3)
    rank = scene.state.fair_share.pod_rank(WAITING)
    scene.driver.add(WAITING)
    held_card = (Charge("GPU-a-0", memory_mib=1000, cores=0, slots=1),)
    scene.state.holds.add(Hold(WAITING.uid, QueueKey("a"), rank, "a", held_card, frozenset({"uid-b-0"})), WAITING)
    assert len(victims(scene, WAITING)) == 1


def test_what_the_cards_really_cost_decides() -> None:
    """A percentage is known to be too much only on the card: the queue would have one and a half, and is owed one."""
    scene = scene_of("a", cards=4, queues={**EQUAL, "c": {"weight": 2}})
    for queue, memory in (("a", 500), ("b", 400), ("c", 100)):
        scene.run(f"{queue}-half@a", memory=memory, labels={QUEUE: queue})
    let_run(scene, "b", 1, 2, 3)
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100"}
    whole = of_queue("a", "whole", containers=[{"name": "main", "resources": {"limits": limits, "requests": limits}}])
    assert victims(scene, whole) == set()
    assert victims(scene, of_queue("a", "half", memory=500))


def test_a_deleted_queue_reclaims_nothing() -> None:
    """Nor one that does so no more."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    assert scene.state.fair_share.reclaiming == {"a"}
    for change in (scene.state.limits.set_queue, scene.state.limits.drop_queue):
        scene.state.limits.set_queue(gpu_queue("a", reclaim="Always"))
        change(gpu_queue("a"))
        assert scene.state.fair_share.reclaiming == set()


def test_the_nodes_of_queues_with_a_surplus_are_found_among_many() -> None:
    """Most nodes, and the first ones, are full of pods of the queue itself."""
    names = [f"n{number:02d}" for number in range(60)]
    scene = scene_of(*names, cards=1, queues={**EQUAL, "a": {"reclaim": "WithinTier", "weight": 100}})
    for number, name in enumerate(names):
        scene.run(f"on-{name}@{name}", labels={QUEUE: "a" if number < 50 else "b"})
    assert len(victims(scene, WAITING)) == 1


async def test_what_a_queue_reclaims_in_an_hour_is_bounded() -> None:
    """Pods that reclaim and end at once cost others at most as many cards as the queue is entitled to."""
    at = [NOW]
    scene = scene_of("a", cards=4, queues=EQUAL, unix=lambda: at[0])
    let_run(scene, "b", *range(4))

    async def abuse(turns: range) -> int:
        before = len(scene.evictor.evicted)
        for turn in turns:
            scene.driver.add(of_queue("a", f"abuse-{turn}"))
            for each in await end_evicted(scene):
                scene.driver.add(of_queue("b", f"{each.metadata.name}+"))
            if f"abuse-{turn}" in scene.driver.running:
                scene.driver.end(f"abuse-{turn}")
            else:
                scene.state.drop_pod(of_queue("a", f"abuse-{turn}"))
            await scene.driver.settle()
            scene.clock.now += 60
            at[0] += 60
        return len(scene.evictor.evicted) - before

    assert await abuse(range(20)) == 2
    at[0] += 3600
    assert await abuse(range(20, 40)) == 2


async def test_refused_evictions_do_not_count_as_reclaimed() -> None:
    """A budget that the API server knows better does not cost the queue its due."""
    scene = scene_of("a", cards=4, queues=EQUAL)
    let_run(scene, "b", *range(4))
    scene.evictor.refuses = True
    scene.driver.add(WAITING)
    for _ in range(3):
        await scene.look()
        scene.clock.now += 100
    assert len(scene.evictor.nominated) == 3
    scene.evictor.refuses = False
    scene.driver.add(of_queue("a", "w2"), of_queue("a", "w3"))
    for _ in range(3):
        await scene.look()
        scene.clock.now += 100
    assert len(scene.evictor.evicted) == 2
