"""The checker's books: every broken promise is reported, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.books import Books
from chaos.share import ALLOCATION, Use
from chaos.violation import Kind
from tests.chaos.support.objects import MIB, SLOTS, lease, limits, node, pod, share, status

PATIENCE, LEASE_SECONDS = 60.0, 70.0


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that begins at 0."""
    return Clock()


@pytest.fixture
def books(clock: Clock) -> Books:
    """Books with a node of two idle cards."""
    return opened(clock)


def opened(clock: Clock) -> Books:
    """Return books with a node of two idle cards."""
    books = Books(clock=clock, patience_seconds=PATIENCE, lease_seconds=LEASE_SECONDS)
    books.fleet.set_node(node())
    books.fleet.set_status(status())
    books.fleet.set_lease(lease(seconds=10_000), now=clock())
    return books


def kinds(books: Books) -> list[Kind]:
    """Return the kinds of the violations."""
    return [each.kind for each in books.violations]


def holding(name: str, memory: int = 1000, cores: int = 100, *, card: str = "n1-0") -> dict[str, Any]:
    """Return a bound pod whose allocation matches its request."""
    asks = limits(memory=memory, cores=cores // 10)
    return pod(name, on="n1", shares={"main": [share(card, memory, cores)]}, asks=asks)


def test_normal_lifecycle_is_not_a_violation(books: Books) -> None:
    """A pod is created, bound, runs and is deleted; it counts from its Binding until it is gone."""
    waiting, bound = pod(), holding("p")
    books.set_pod(waiting)
    books.set_pod(bound)
    assert books.used()["n1-0"] == Use(1000, 100, 1)
    bound["status"]["phase"] = "Running"
    books.set_pod(bound)
    books.drop_pod(bound)
    assert books.used()["n1-0"] == Use()
    assert (books.violations, books.placed) == ([], 1)


@pytest.mark.parametrize(
    "second",
    [holding("b", memory=MIB - 999), holding("b", cores=910)],
    ids=["memory", "cores"],
)
def test_one_unit_over_capacity_is_reported(books: Books, second: dict[str, Any]) -> None:
    """This holds for memory and for compute; the report names the card and its holders."""
    books.set_pod(holding("a"))
    assert kinds(books) == []
    books.set_pod(second)
    (found,) = books.violations
    assert (found.kind, found.subject) == (Kind.OVER_CAPACITY, "n1-0")
    assert "['ns/a', 'ns/b']" in found.details


def test_one_container_over_the_slots_is_reported(books: Books) -> None:
    """A card has a fixed number of slots, one per container."""
    for number in range(SLOTS):
        books.set_pod(holding(f"p{number}"))
    assert kinds(books) == []
    books.set_pod(holding("more"))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_momentary_overcommit_is_reported(books: Books) -> None:
    """Two pods that held the whole card together are reported although one is deleted at once."""
    books.set_pod(holding("a", memory=MIB))
    books.set_pod(holding("b", memory=MIB))
    books.drop_pod(holding("a", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_last_state_of_a_deleted_pod_counts(books: Books) -> None:
    """It may be the first state with a node."""
    books.set_pod(holding("a", memory=MIB))
    books.set_pod(pod("b"))
    books.drop_pod(holding("b", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_ended_pod_holds_no_card(books: Books) -> None:
    """Its card is free for the next pod."""
    done = holding("a", memory=MIB)
    books.set_pod(done)
    books.set_pod({**done, "status": {"phase": "Succeeded"}})
    books.set_pod(holding("b", memory=MIB))
    assert kinds(books) == []


def test_pod_of_a_deleted_node_holds_its_card(books: Books) -> None:
    """It holds the card until it is deleted itself, because the node may return with it."""
    books.set_pod(holding("a", memory=MIB))
    books.fleet.drop_node(node())
    books.fleet.drop_status(status())
    books.fleet.set_node(node())
    books.fleet.set_status(status())
    books.set_pod(holding("b", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_shrinking_card_is_not_a_violation(books: Books) -> None:
    """A further allocation on it is one."""
    books.set_pod(holding("a", memory=MIB))
    books.fleet.set_status(status(memory=MIB // 2))
    assert kinds(books) == []
    books.set_pod(holding("b"))
    assert kinds(books) == [Kind.OVER_CAPACITY]


@pytest.mark.parametrize(
    "then",
    [
        pod(on="n2", shares={"main": [share()]}),
        pod(on="n1", shares={"main": [share("n1-1")]}),
        pod(on="n1"),
    ],
    ids=["another node", "another card", "none any more"],
)
def test_second_binding_is_reported(books: Books, then: dict[str, Any]) -> None:
    """The node and the allocation of a bound pod never change."""
    books.set_pod(pod(on="n1", shares={"main": [share()]}))
    books.set_pod(then)
    assert Kind.BOUND_TWICE in kinds(books)


def test_new_pod_of_the_same_name_may_go_elsewhere(books: Books) -> None:
    """The UID distinguishes the two pods."""
    books.set_pod(pod(uid="one", on="n1", shares={"main": [share()]}))
    books.drop_pod(pod(uid="one", on="n1", shares={"main": [share()]}))
    books.set_pod(pod(uid="two", on="n1", shares={"main": [share("n1-1")]}))
    assert kinds(books) == []


def test_node_without_an_allocation_is_reported(books: Books) -> None:
    """An allocation without a node is reported, too."""
    books.set_pod(pod(on="n1"))
    assert kinds(books) == [Kind.NO_ALLOCATION]
    half = pod("half", on="n1", shares={"main": [share()]})
    del half["spec"]["nodeName"]
    books.set_pod(half)
    assert kinds(books) == [Kind.NO_ALLOCATION, Kind.NO_NODE]


def test_pod_without_gpu_request_needs_no_allocation(books: Books) -> None:
    """It may be bound without one."""
    books.set_pod(pod(on="n1", asks={}))
    assert kinds(books) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pod(on="n1", shares={"main": [share(memory=999)]}),
        pod(on="n1", shares={"main": [share(cores=90)]}),
        pod(on="n1", shares={"main": []}),
        pod(on="n1", shares={"main": [share("n1-0"), share("n1-1")]}),
        pod(on="n1", shares={"main": [share("n1-0"), share("n1-0")]}, asks=limits(gpu=2)),
        pod(on="n1", shares={"main": [share()], "other": [share()]}),
        pod(on="n1", shares={"main": [share("unknown")]}),
        pod(on="n2", shares={"main": [share("n1-0")]}),
    ],
    ids=[
        "memory",
        "cores",
        "none",
        "too many",
        "twice the same",
        "unknown container",
        "unknown card",
        "another node's card",
    ],
)
def test_allocation_that_differs_from_the_request_is_reported(books: Books, wrong: dict[str, Any]) -> None:
    """Each container has the requested number of cards, the requested share of each, all on the pod's node."""
    books.set_pod(wrong)
    assert set(kinds(books)) == {Kind.WRONG_ALLOCATION}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v":2}', '{"v":1,"node":"n1","containers":{"main":[{}]}}'])
def test_unreadable_allocation_is_reported(books: Books, text: str) -> None:
    """It is not silently ignored."""
    broken = pod(on="n1")
    broken["metadata"]["annotations"][ALLOCATION] = text
    books.set_pod(broken)
    assert kinds(books) == [Kind.WRONG_ALLOCATION]


def test_allocation_for_another_node_is_reported(books: Books) -> None:
    """The pod's node and the node in its allocation must be the same."""
    wrong = pod(on="n1", shares={"main": [share()]})
    annotations = wrong["metadata"]["annotations"]
    annotations[ALLOCATION] = json.dumps({**json.loads(annotations[ALLOCATION]), "node": "n2"})
    books.set_pod(wrong)
    assert kinds(books) == [Kind.WRONG_ALLOCATION]


def test_schedulable_pod_that_waits_too_long_is_reported(books: Books, clock: Clock) -> None:
    """It is reported once, and not before the limit."""
    books.set_pod(pod())
    for clock.now in (0.0, PATIENCE):
        books.tick()
    assert kinds(books) == []
    for clock.now in (PATIENCE + 1, PATIENCE + 2):
        books.tick()
    assert kinds(books) == [Kind.WAITS]


def full(books: Books) -> None:
    """Fill both cards."""
    for number in range(2):
        books.set_pod(holding(f"full-{number}", memory=MIB, card=f"n1-{number}"))


def cordoned(books: Books) -> None:
    """Cordon the node."""
    books.fleet.set_node(node(unschedulable=True))


def tainted(books: Books) -> None:
    """Taint the node, as the node controller does when the kubelet is silent."""
    books.fleet.set_node(node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]))


def unhealthy(books: Books) -> None:
    """Report all cards unhealthy."""
    books.fleet.set_status(status(health="Unhealthy"))


def silent(books: Books) -> None:
    """Let the heartbeat of its agent expire."""
    books.fleet.set_lease(lease(renewed="then", seconds=0), now=0.0)


@pytest.mark.parametrize("make", [full, cordoned, tainted, unhealthy, silent])
def test_unschedulable_pod_may_wait(books: Books, clock: Clock, make: Any) -> None:
    """No card is free, or the node accepts no pods."""
    make(books)
    books.set_pod(pod())
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert kinds(books) == []


@pytest.mark.parametrize(("priority", "reported"), [(0, []), (1, []), (2, ["ns/waits"])])
def test_cards_that_are_kept_for_a_nominee_are_free_for_more_important_pods_only(
    books: Books, clock: Clock, priority: int, reported: list[str]
) -> None:
    """One card is empty: the nominee waits until the pod on the other one has ended."""
    books.set_pod(holding("victim", memory=MIB))
    nominee = pod("nominee", asks=limits(gpu=2, memory=MIB), priority=1)
    nominee["status"]["nominatedNodeName"] = "n1"
    books.set_pod(nominee)
    books.set_pod(pod("waits", priority=priority))
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert [each.subject for each in books.violations] == reported


def test_nominee_that_its_node_takes_may_not_wait(books: Books, clock: Clock) -> None:
    """Its cards are kept from others, not from itself."""
    nominee = pod("nominee", priority=1)
    nominee["status"]["nominatedNodeName"] = "n1"
    books.set_pod(nominee)
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert [each.subject for each in books.violations] == ["ns/nominee"]


def test_wait_is_measured_while_cards_stay_free(books: Books, clock: Clock) -> None:
    """The time starts again when the cards were full in between."""
    books.set_pod(pod())
    books.tick()
    clock.now = PATIENCE
    full(books)
    books.tick()
    for number in range(2):
        books.drop_pod(holding(f"full-{number}", memory=MIB, card=f"n1-{number}"))
    for clock.now in (PATIENCE + 1, 2 * PATIENCE):
        books.tick()
    assert kinds(books) == []
    clock.now = 2 * PATIENCE + 2
    books.tick()
    assert kinds(books) == [Kind.WAITS]


@pytest.mark.parametrize(
    "other",
    [
        pod(schedulerName="default-scheduler"),
        pod(schedulingGates=[{"name": "quota"}]),
        pod(phase="Failed"),
    ],
    ids=["another scheduler's", "gated", "ended"],
)
def test_pod_that_is_not_to_be_scheduled_may_wait(books: Books, clock: Clock, other: dict[str, Any]) -> None:
    """It is never reported."""
    books.set_pod(other)
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert kinds(books) == []


def test_list_after_a_gap_is_one_moment(books: Books) -> None:
    """Deleted and new pods in it do not conflict with each other; a change of one pod is still checked."""
    books.set_pod(holding("a", memory=MIB))
    books.replace_pods([holding("b", memory=MIB)])
    assert kinds(books) == []
    assert books.used()["n1-0"] == Use(MIB, 100, 1)
    books.replace_pods([holding("b", memory=MIB), holding("c", memory=MIB)])
    assert kinds(books) == [Kind.OVER_CAPACITY]
    books.replace_pods([pod("b", on="n1", shares={"main": [share("n1-1")]}), holding("c", memory=MIB)])
    assert Kind.BOUND_TWICE in kinds(books)


def test_init_containers_count_with_sidecars(books: Books) -> None:
    """A pod holds the maximum of its regular containers and of each init container, sidecars included."""
    containers = {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"limits": limits(memory=1000)}},
            {"name": "first", "resources": {"limits": limits(memory=5000, cores=0)}},
        ]
    }
    shares = {
        "side": [share(memory=1000, cores=100)],
        "first": [share(memory=5000, cores=0)],
        "main": [share(memory=1000, cores=100)],
    }
    books.set_pod(pod(on="n1", shares=shares, **containers))
    assert books.used()["n1-0"] == Use(6000, 200, 2)
    assert kinds(books) == []


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 6)), max_size=40)


@given(STEPS)
def test_over_capacity_is_reported_exactly_when_it_happens(steps: list[tuple[int, int, int]]) -> None:
    """For any order of creations and deletions, it is reported if and only if the sum exceeds the card once."""
    books, alive, exceeded = opened(Clock()), dict[str, int](), False
    for number, what, thousands in steps:
        name = f"p{number}"
        if what and name not in alive:
            alive[name] = thousands * 1000
            books.set_pod(holding(name, memory=alive[name], cores=0))
        elif not what and name in alive:
            books.drop_pod(holding(name, memory=alive.pop(name), cores=0))
        total = (sum(alive.values()), 0, len(alive))
        assert books.used()["n1-0"] == total
        exceeded |= total[0] > MIB or total[2] > SLOTS
    assert (Kind.OVER_CAPACITY in kinds(books)) == exceeded


@pytest.mark.parametrize(("urgent", "on", "is_legal"), [(1, "n1", True), (0, "n1", False), (1, "n2", False)])
def test_an_eviction_needs_a_nominated_pod_of_higher_priority(
    books: Books, urgent: int, on: str, *, is_legal: bool
) -> None:
    """On the node of the victim; it counts even if that pod is deleted meanwhile."""
    nominated = pod("urgent", priority=urgent)
    books.set_pod({**nominated, "status": {"phase": "Pending", "nominatedNodeName": on}})
    books.drop_pod(nominated)
    books.set_pod(holding("victim"))
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    for _ in range(2):
        books.set_pod({**holding("victim"), "status": {"phase": "Running", "conditions": [condition]}})
    assert kinds(books) == ([] if is_legal else [Kind.WRONG_VICTIM])
