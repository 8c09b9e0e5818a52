"""An explanation says whether a gang would get nodes together, by a rehearsal that nothing else sees."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.settings import AllocationSettings
from allocation.steps import advance, finish
from scheduler.api import explanation, gang_explanation
from scheduler.api.gang_explanation import MOST_REHEARSED
from scheduler.api.gang_types import GangExplanation
from scheduler.gang_scheduling.gang_cycle import GangCycle, RejectedGang, ScheduledGang
from scheduler.pacing import Pacer
from scheduler.queue.entry import Rejected
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.gang_scheduling.test_all_or_nothing import WHOLE, RecordingBinder, member, running
from tests.scheduler.gang_scheduling.test_decision import holding
from tests.scheduler.model.recount import counted
from tests.scheduler.support.builders import Clock, allocated, pod, state
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.volume_binding import until

if TYPE_CHECKING:
    from scheduler.api.explanation_types import Explanation
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


def gathering(count: int, *, cards: int, size: int = 4, clock: Clock | None = None) -> ClusterState:
    """Return a node with some cards, and pods of a gang that ask for one whole card each."""
    made = state("n1", cards=cards, clock=clock)
    for index in range(count):
        made.set_pod(member(f"m{index}", size=size))
    return made


def explained(made: ClusterState, name: str) -> Explanation:
    """Return the explanation of a pod after a rehearsal of its gang."""
    asked = made.gangs.pod(f"uid-{name}")
    assert asked is not None
    rehearsed = finish(gang_explanation.rehearse(cycle_of(made), asked))
    return finish(explanation.explain(cycle_of(made), asked, evictions=evictions_of(made), rehearsed=rehearsed))


def still(made: ClusterState) -> dict[str, Any]:
    """Return everything that a rehearsal must not change; the log of changes says that something was tried."""
    found = everything(made)
    del found["changes"]
    found["used"] = {node: used for node, used in found["used"].items() if used}
    places = [(entry.pod.uid, entry.place, entry.lane, entry.due_since, entry.since) for entry in made.queue]
    gangs = [(str(gang.key), gang.state, sorted(gang.waiting), dict(gang.nodes)) for gang in made.gangs]
    return deepcopy({**found, "places": places, "gangs": gangs, "holds": set(made.holds), "counted": counted(made)})


def test_the_first_pod_without_a_place_is_named() -> None:
    """Three of four fit; each of them says so, although alone it would."""
    made = gathering(4, cards=3)
    shown = explained(made, "m0")
    assert shown.gang is not None
    assert (shown.gang.fitting, shown.gang.size, shown.gang.pod) == (3, 4, "m3")
    assert shown.gang.why.startswith("no available node")
    assert (shown.outcome, shown.node, shown.shares) == ("waits", "", ())
    start = "waits: 3 of the 4 pods that gang default/train needs have a place; pod default/m3: no available node"
    assert shown.answer.startswith(start)
    assert not any(node.chosen for node in shown.nodes)


def test_a_gang_that_fits_has_the_places_of_one_decision() -> None:
    """No two of its pods are shown on the same card."""
    made = gathering(4, cards=4)
    found = [explained(made, f"m{index}") for index in range(4)]
    assert {each.outcome for each in found} == {"fits"}
    assert len({share.uuid for each in found for share in each.shares}) == 4
    assert {each.gang and each.gang.fitting for each in found} == {4}


def test_pods_that_have_nodes_count() -> None:
    """One runs, so three have to fit."""
    made = gathering(0, cards=3)
    runs = allocated("m0", node="n1", memory=WHOLE, labels={"gpu.scheduling/gang": "train"})
    runs.metadata.annotations["gpu.scheduling/gang-min-members"] = "4"
    made.set_pod(runs)
    for index in range(1, 4):
        made.set_pod(member(f"m{index}"))
    shown = explained(made, "m2").gang
    assert shown is not None
    assert (shown.placed, shown.waiting, shown.fitting, shown.state) == (1, 3, 3, "Partial")
    assert explained(made, "m0").gang == GangExplanation("train", "Partial", size=4, placed=1, waiting=3)


def test_a_gang_of_which_pods_are_missing_is_not_rehearsed() -> None:
    """Nor is one that is being bound, or whose pods are decided alone, or that is too large."""
    made = gathering(3, cards=4)
    shown = explained(made, "m0")
    assert shown.gang is not None
    assert (shown.outcome, shown.gang.fitting, shown.gang.state) == ("waits", None, "Incomplete")
    assert shown.answer == (
        "waits: GangIncomplete: gang default/train needs 4 pods, and fewer exist: create the others"
    )
    made.set_pod(member("m3"))
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    gang.is_committing = True
    shown = explained(made, "m0")
    assert (shown.gang and shown.gang.state, "others of gang default/train are being bound" in shown.answer) == (
        "Binding",
        True,
    )
    gang.is_committing = False
    for index in range(MOST_REHEARSED):
        made.set_pod(member(f"late-{index}"))
    assert not gang_explanation.is_rehearsed(made, made.gangs.pod("uid-m0"))  # type: ignore[arg-type]
    alone = state("n1")
    alone.set_pod(member("m0", size=0))
    shown = explained(alone, "m0")
    assert (shown.outcome, shown.gang and shown.gang.fitting) == ("fits", None)


def test_a_pause_is_shown() -> None:
    """The gang is not decided before it is over."""
    clock = Clock()
    made = gathering(4, cards=4, clock=clock)
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    gang.pause_until = clock.now + 7
    shown = explained(made, "m0").gang
    assert shown is not None
    assert (shown.pause_seconds, shown.fitting) == (7.0, 4)


def test_a_pod_beyond_the_size_that_does_not_fit_waits() -> None:
    """Four of five fit, and the fifth says why it does not."""
    made = gathering(5, cards=4)
    found = {f"m{index}": explained(made, f"m{index}") for index in range(5)}
    assert [name for name, each in found.items() if each.outcome == "waits"] == ["m4"]
    assert found["m0"].gang == found["m4"].gang
    assert found["m0"].gang is not None
    assert (found["m0"].gang.fitting, found["m0"].gang.pod) == (4, "m4")


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=2, unique_by=(lambda e: e[0], lambda e: e[1])),
    st.integers(0, 30),
)
def test_a_rehearsal_changes_nothing(cards: int, size: int, holds: list[tuple[int, int]], steps: int) -> None:
    """The ledger, holds, quotas, shares, queue, claims and gangs are equal afterwards, also if it ends early."""
    made = gathering(5, cards=cards, size=size)
    for pod_index, card in holds:
        if pod_index < 5 and card < cards:
            holding(made, f"m{pod_index}", card)
    before = still(made)
    explained(made, "m0")
    assert still(made) == before
    asked = made.gangs.pod("uid-m0")
    assert asked is not None
    trying = gang_explanation.rehearse(cycle_of(made), asked)
    try:
        for _ in range(steps):
            advance(trying)
    except StopIteration:
        pass
    trying.close()
    assert still(made) == before


@given(st.integers(1, 5), st.integers(2, 5))
def test_a_rehearsal_predicts_the_decision(cards: int, count: int) -> None:
    """The same pods get places, or the same one gets none."""
    made = gathering(count, cards=cards, size=count)
    gang, asked = made.gangs.of("uid-m0"), made.gangs.pod("uid-m0")
    assert gang is not None
    assert asked is not None
    rehearsed = finish(gang_explanation.rehearse(cycle_of(made), asked))
    decided = finish(GangCycle(cycle_of(made)).schedule(gang, made.queue.take(list(gang.waiting))))
    if isinstance(decided, RejectedGang):
        assert isinstance(rehearsed, RejectedGang)
        assert (rehearsed.fitting, rehearsed.pod.uid) == (decided.fitting, decided.pod.uid)
    else:
        assert isinstance(rehearsed, ScheduledGang)
        assert isinstance(decided, ScheduledGang)
        places = [{entry.pod.uid: chosen.allocation for entry, chosen in each.members} for each in (rehearsed, decided)]
        assert places[0] == places[1]


async def test_no_pod_is_decided_while_a_gang_is_rehearsed() -> None:
    """A single pod waits for the end of the rehearsal, and then gets the card that was reserved meanwhile."""
    made, binder = gathering(2, cards=1, size=2), RecordingBinder()
    asked = made.gangs.pod("uid-m0")
    assert asked is not None
    async with running(made, binder):
        await asyncio.sleep(0.05)
        async with made.alone():
            trying = gang_explanation.rehearse(cycle_of(made), asked)
            while not made.node_cache.is_assumed("uid-m0"):
                advance(trying)
            made.set_pod(pod("single", memory=WHOLE))
            await asyncio.sleep(0.05)
            assert not binder.bound
            finish(trying)
        await until(lambda: bool(binder.bound))
    assert binder.bound == {"single": "n1"}


async def test_a_rehearsal_that_is_cancelled_or_takes_too_long_is_undone_at_once() -> None:
    """Before the decisions that wait for its end begin."""
    made = gathering(4, cards=4)
    asked, before = made.gangs.pod("uid-m0"), still(made)
    assert asked is not None

    async def rehearse(seconds: float) -> None:
        async with made.alone():
            await Pacer(slice_seconds=0.0).run(gang_explanation.rehearse(cycle_of(made), asked), most_seconds=seconds)

    with pytest.raises(TimeoutError):
        await rehearse(0.0)
    assert still(made) == before
    task = asyncio.create_task(rehearse(60.0))
    while not made.node_cache.is_assumed("uid-m1"):  # noqa: ASYNC110 -- a step of the rehearsal, not later
        await asyncio.sleep(0)
    task.cancel()
    async with made.alone():
        assert still(made) == before
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_rehearsal_wakes_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one of the same application, whose cards are as free afterwards as they were before."""
    made = gathering(4, cards=3)
    made.set_pod(pod("peer", memory=9 * WHOLE))
    (entry,) = made.queue.take(["uid-peer"])
    made.queue.add_unschedulable(entry, Rejected("no room", frozenset()))
    monkeypatch.setattr(made.bindings, "peers", lambda _: ["uid-peer"])
    explained(made, "m0")
    assert entry.place == "unschedulable"


def test_a_pod_that_kube_scheduler_brings_has_its_gang_without_a_rehearsal() -> None:
    """In extender mode the gang is counted, and the reason is that of its turn."""
    made = state("n1", has_queue=False)
    asked = member("m0")
    made.set_pod(asked)
    assert not gang_explanation.is_rehearsed(made, asked)
    shown = explanation.of_external(made, asked, "waits for its turn")
    assert shown.gang == GangExplanation("train", "Incomplete", 4, placed=0, waiting=1)


@pytest.mark.parametrize(("scheduler", "is_rehearsed"), [("tranche", True), ("tranche-claims", False)])
def test_a_gang_that_is_handed_over_is_not_rehearsed(scheduler: str, *, is_rehearsed: bool) -> None:
    """Its pods are in no queue of the loop, whose decision would say nothing about them."""
    made = state("n1", settings=AllocationSettings(resource_claims="hand-over"))
    asked = [member(name, size=2) for name in ("m0", "m1")]
    for each in asked:
        each.spec.scheduler_name = scheduler
        made.set_pod(each)
    assert gang_explanation.is_rehearsed(made, asked[0]) is is_rehearsed


def test_a_planned_pod_is_one_more_of_its_gang() -> None:
    """Of one that does not exist yet it is the first."""
    made = gathering(2, cards=4)
    planned: Pod = member("new")
    planned.metadata.uid = ""
    assert gang_explanation.gang_of(made, planned) == GangExplanation("train", "Incomplete", 4, placed=0, waiting=3)
    other = member("new", "other", size=1)
    other.metadata.uid = ""
    assert gang_explanation.gang_of(made, other) == GangExplanation("other", "Waiting", 1, placed=0, waiting=1)
    assert gang_explanation.gang_of(made, pod("plain", memory=9)) is None
