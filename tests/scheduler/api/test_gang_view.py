"""All gangs, as `GET /api/gangs` returns them: how many pods have nodes, and why the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.api import gang_view
from scheduler.api.gang_types import GangMember, GangsView, GangView, MemberCard
from scheduler.gang_scheduling.gang_cycle import GangCycle, ScheduledGang
from scheduler.queue.entry import Rejected
from tests.scheduler.support.builders import Clock, allocated, pod, state
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


def member(name: str, gang: str = "train", size: int = 4, *, where: str = "", **more: str) -> Pod:
    """Return a pod of a gang, which waits or is on node n1."""
    keys = {"gpu.scheduling/gang-min-members": str(size), **more}
    labels = {"gpu.scheduling/gang": gang}
    if not where:
        return pod(name, memory=100, labels=labels, annotations=keys)
    made = allocated(name, node=where, memory=100, labels=labels)
    made.metadata.annotations.update(keys)
    return made


def shown(made: ClusterState, **chosen: str) -> GangsView:
    """Return the gangs as the scheduler shows them."""
    return finish(gang_view.view(made, gang_view.published(made), **chosen))  # type: ignore[arg-type]


def only(made: ClusterState) -> GangView:
    """Return the only gang."""
    (gang,) = shown(made).gangs
    return gang


def test_the_state_follows_from_where_the_pods_are() -> None:
    """From the first pod that is created to the last that ends."""
    made = state("n1")
    pods = [member(f"m{index}", size=2) for index in range(3)]
    made.set_pod(pods[0])
    assert only(made).state == "Incomplete"
    made.set_pod(pods[1])
    assert only(made).state == "Waiting"
    gang = made.gangs.of(pods[0].uid)
    assert gang is not None
    gang.is_committing = True
    assert only(made).state == "Binding"
    gang.is_committing = False
    first = member("m0", size=2, where="n1")
    made.set_pod(first, pods[0])
    assert only(made).state == "Partial"
    second = member("m1", size=2, where="n1")
    made.set_pod(second, pods[1])
    assert (only(made).state, only(made).placed, only(made).waiting) == ("Running", 2, 0)
    for each in (first, second):
        ended = member(each.metadata.name, size=2, where="n1")
        ended.status.phase = "Succeeded"
        made.set_pod(ended, each)
    assert (only(made).state, only(made).placed, only(made).succeeded) == ("Finished", 0, 2)


def test_a_gang_without_a_size_runs_with_its_first_pod() -> None:
    """It is a preference: none of its pods waits for another one."""
    made = state("n1")
    made.set_pod(member("m0", size=1))
    assert only(made).state == "Waiting"
    made.set_pod(member("m1", size=1, where="n1"))
    assert only(made).state == "Running"


def test_what_a_decision_has_reserved_so_far_is_not_a_state() -> None:
    """While it is made, the gang has the state that it had before."""
    made = state("n1")
    for index in range(2):
        made.set_pod(member(f"m{index}", size=2))
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    deciding = GangCycle(cycle_of(made)).schedule(gang, made.queue.take(list(gang.waiting)))
    while not gang.nodes:
        next(deciding)
    assert gang.is_partial
    assert gang.state == "Waiting"
    assert made.gangs.being_decided() == frozenset(gang.nodes)
    assert isinstance(finish(deciding), ScheduledGang)
    assert (gang.state, made.gangs.being_decided()) == ("Running", frozenset())


def test_a_gang_has_what_it_waits_for() -> None:
    """What its pods declare and disagree about, since when it waits, for how long it pauses, and why."""
    clock = Clock()
    made = state("n1", clock=clock)
    keys = {"gpu.scheduling/gang-timeout": "10m", "gpu.scheduling/gang-block": "zone"}
    old, young = member("m0", **keys), member("m1", size=3)
    old.metadata.creation_timestamp, young.metadata.creation_timestamp = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    for each in (young, old):
        made.set_pod(each)
    gang = made.gangs.of(old.uid)
    assert gang is not None
    gang.pause_until = clock.now + 7.5
    (entry,) = made.queue.take([young.uid])
    made.queue.add_unschedulable(entry, Rejected("no room", frozenset()))
    entry.published = "no room"
    assert only(made) == GangView(
        namespace="default",
        name="train",
        state="Incomplete",
        size=4,
        placed=0,
        waiting=2,
        succeeded=0,
        waiting_since="2026-01-01T00:00:00Z",
        pause_seconds=7.5,
        timeout_seconds=600.0,
        block="zone",
        disagreement="its pods declare sizes from 3 to 4: the largest counts",
        message="no room",
    )


def test_the_pods_of_one_gang_are_shown_with_nodes_cards_and_reasons() -> None:
    """By name; only where namespace and name are given."""
    made = state("n1")
    for each in (member("b", where="n1"), member("a"), member("c", "other")):
        made.set_pod(each)
    entry = made.queue.get("uid-a")
    assert entry is not None
    entry.published = "x" * 5000
    (gang,) = shown(made, namespace="default", name="train").gangs
    assert gang.members == (
        GangMember("a", "waiting", message="x" * 1024),
        GangMember("b", "placed", "n1", (MemberCard("GPU-n1-0", 0),)),
    )
    assert [each.members for each in shown(made, name="train").gangs] == [()]


@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_pages_have_every_gang_once(most: int) -> None:
    """In the order of namespaces and names, also of names with slashes."""
    made = state("n1")
    for index, name in enumerate(("a", "b/c", "b", "z/z/z", "d")):
        made.set_pod(member(f"m{index}", name))
    found, after = list[str](), ""
    while True:
        page = finish(gang_view.view(made, gang_view.published(made), after=after, most=most))
        assert len(page.gangs) <= most
        found += [each.name for each in page.gangs]
        after = page.next
        if not after:
            break
    assert found == ["a", "b", "b/c", "d", "z/z/z"]


@given(st.lists(st.sampled_from(["waits", "runs", "ends", "goes"]), max_size=12), st.integers(1, 6))
def test_states_and_counts_agree(story: list[str], size: int) -> None:
    """Whatever happens to its pods: `Partial` is exactly some of them on nodes, but fewer than necessary."""
    made = state("n1")
    for index, what in enumerate(story):
        name = f"m{index}"
        made.set_pod(member(name, size=size))
        if what == "goes":
            made.drop_pod(member(name, size=size))
        elif what != "waits":
            made.set_pod(member(name, size=size, where="n1"), member(name, size=size))
        if what == "ends":
            ended = member(name, size=size, where="n1")
            ended.status.phase = "Succeeded"
            made.set_pod(ended, member(name, size=size, where="n1"))
    for gang in shown(made).gangs:
        has = gang.placed + gang.succeeded
        assert (gang.state == "Partial") == (gang.placed > 0 and has < size)
        assert (gang.state == "Running") == (gang.placed > 0 and has >= size)
        assert (gang.state == "Incomplete") == (not gang.placed and has + gang.waiting < size and gang.waiting > 0)
        assert (gang.state == "Finished") == (not gang.placed and not gang.waiting)
