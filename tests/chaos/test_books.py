"""The checker's books: each thing that may never be is seen, and nothing is seen where all is well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.books import Books
from chaos.share import ALLOCATION, Use
from chaos.violation import Kind
from tests.chaos.things import MIB, SLOTS, lease, limits, node, pod, share, status

PATIENCE = 60.0


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Answer what time it is."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Begin at nought."""
    return Clock()


@pytest.fixture
def books(clock: Clock) -> Books:
    """Books in which a node with two idle cards stands."""
    return opened(clock)


def opened(clock: Clock) -> Books:
    """Answer books in which a node with two idle cards stands."""
    books = Books(clock=clock, patience_seconds=PATIENCE)
    books.fleet.set_node(node())
    books.fleet.set_status(status())
    books.fleet.set_lease(lease(seconds=10_000), now=clock())
    return books


def kinds(books: Books) -> list[Kind]:
    """Answer what was broken."""
    return [each.kind for each in books.violations]


def holding(name: str, memory: int = 1000, cores: int = 100, *, card: str = "n1-0") -> dict[str, Any]:
    """Answer a pod that has just what it asked for."""
    asks = limits(memory=memory, cores=cores // 10)
    return pod(name, on="n1", shares={"main": [share(card, memory, cores)]}, asks=asks)


def test_a_life_in_order_breaks_nothing(books: Books) -> None:
    """Created, bound, running, being deleted, gone: counted while it lives, and then no more."""
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
def test_one_unit_too_much_is_seen(books: Books, second: dict[str, Any]) -> None:
    """Of memory and of compute; the report names the card and who has it."""
    books.set_pod(holding("a"))
    assert kinds(books) == []
    books.set_pod(second)
    (found,) = books.violations
    assert (found.kind, found.subject) == (Kind.OVER_CAPACITY, "n1-0")
    assert "['ns/a', 'ns/b']" in found.what


def test_one_container_too_many_is_seen(books: Books) -> None:
    """A card has slots for so many containers."""
    for number in range(SLOTS):
        books.set_pod(holding(f"p{number}"))
    assert kinds(books) == []
    books.set_pod(holding("more"))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_a_moment_is_enough(books: Books) -> None:
    """Two that held the whole card together for one change are seen, though one of them is gone at once."""
    books.set_pod(holding("a", memory=MIB))
    books.set_pod(holding("b", memory=MIB))
    books.drop_pod(holding("a", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_what_was_bound_and_gone_between_two_looks_counts(books: Books) -> None:
    """The last state of a deleted pod may be the first with a node."""
    books.set_pod(holding("a", memory=MIB))
    books.set_pod(pod("b"))
    books.drop_pod(holding("b", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_a_finished_pod_holds_nothing(books: Books) -> None:
    """Its card is free for the next."""
    done = holding("a", memory=MIB)
    books.set_pod(done)
    books.set_pod({**done, "status": {"phase": "Succeeded"}})
    books.set_pod(holding("b", memory=MIB))
    assert kinds(books) == []


def test_a_pod_of_a_vanished_node_holds_its_card(books: Books) -> None:
    """Until it is gone itself: the node may come back with it."""
    books.set_pod(holding("a", memory=MIB))
    books.fleet.drop_node(node())
    books.fleet.drop_status(status())
    books.fleet.set_node(node())
    books.fleet.set_status(status())
    books.set_pod(holding("b", memory=MIB))
    assert kinds(books) == [Kind.OVER_CAPACITY]


def test_a_card_that_shrinks_under_its_pods_is_nobodys_fault(books: Books) -> None:
    """But whoever is given a share of it then is one too many."""
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
def test_a_second_binding_is_seen(books: Books, then: dict[str, Any]) -> None:
    """A node or an allocation that is there once never changes."""
    books.set_pod(pod(on="n1", shares={"main": [share()]}))
    books.set_pod(then)
    assert Kind.BOUND_TWICE in kinds(books)


def test_another_pod_of_the_name_may_go_elsewhere(books: Books) -> None:
    """The UID tells them apart."""
    books.set_pod(pod(uid="one", on="n1", shares={"main": [share()]}))
    books.drop_pod(pod(uid="one", on="n1", shares={"main": [share()]}))
    books.set_pod(pod(uid="two", on="n1", shares={"main": [share("n1-1")]}))
    assert kinds(books) == []


def test_a_node_without_an_allocation_is_seen(books: Books) -> None:
    """And an allocation without a node."""
    books.set_pod(pod(on="n1"))
    assert kinds(books) == [Kind.NO_ALLOCATION]
    half = pod("half", on="n1", shares={"main": [share()]})
    del half["spec"]["nodeName"]
    books.set_pod(half)
    assert kinds(books) == [Kind.NO_ALLOCATION, Kind.NO_NODE]


def test_who_asks_for_no_gpu_needs_none(books: Books) -> None:
    """Other pods have nodes, too."""
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
        pod(on="n1", shares={"main": [share("nobody's")]}),
        pod(on="n2", shares={"main": [share("n1-0")]}),
    ],
    ids=["memory", "cores", "none", "too many", "twice the same", "a stranger's", "unknown card", "another's card"],
)
def test_what_nobody_asked_for_is_seen(books: Books, wrong: dict[str, Any]) -> None:
    """Each container has as many cards as it asked for, with just that much of each, of the node where it is."""
    books.set_pod(wrong)
    assert set(kinds(books)) == {Kind.WRONG_ALLOCATION}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v":2}', '{"v":1,"node":"n1","containers":{"main":[{}]}}'])
def test_an_allocation_that_cannot_be_read_is_seen(books: Books, text: str) -> None:
    """It is no reason to count nothing in silence."""
    broken = pod(on="n1")
    broken["metadata"]["annotations"][ALLOCATION] = text
    books.set_pod(broken)
    assert kinds(books) == [Kind.WRONG_ALLOCATION]


def test_an_allocation_for_another_node_is_seen(books: Books) -> None:
    """The pod's node and the one in its allocation are the same."""
    wrong = pod(on="n1", shares={"main": [share()]})
    annotations = wrong["metadata"]["annotations"]
    annotations[ALLOCATION] = json.dumps({**json.loads(annotations[ALLOCATION]), "node": "n2"})
    books.set_pod(wrong)
    assert kinds(books) == [Kind.WRONG_ALLOCATION]


def test_who_waits_beside_room_is_seen(books: Books, clock: Clock) -> None:
    """Not before the time is over, and once."""
    books.set_pod(pod())
    for clock.now in (0.0, PATIENCE):
        books.tick()
    assert kinds(books) == []
    for clock.now in (PATIENCE + 1, PATIENCE + 2):
        books.tick()
    assert kinds(books) == [Kind.WAITS]


def no_room(books: Books) -> None:
    """Fill both cards."""
    for number in range(2):
        books.set_pod(holding(f"full-{number}", memory=MIB, card=f"n1-{number}"))


def cordoned(books: Books) -> None:
    """Close the node."""
    books.fleet.set_node(node(unschedulable=True))


def tainted(books: Books) -> None:
    """Close the node, as the controller does that hears nothing of its kubelet."""
    books.fleet.set_node(node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]))


def ill(books: Books) -> None:
    """Let its cards be ill."""
    books.fleet.set_status(status(health="Unhealthy"))


def silent(books: Books) -> None:
    """Let its agent fall silent: it said that it lives, for no time."""
    books.fleet.set_lease(lease(renewed="then", seconds=0), now=0.0)


@pytest.mark.parametrize("why", [no_room, cordoned, tainted, ill, silent])
def test_who_has_no_room_waits_for_good_reason(books: Books, clock: Clock, why: Any) -> None:
    """No card free, or its node takes nobody."""
    why(books)
    books.set_pod(pod())
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert kinds(books) == []


def test_only_uninterrupted_room_counts(books: Books, clock: Clock) -> None:
    """The time begins anew when there was none in between."""
    books.set_pod(pod())
    books.tick()
    clock.now = PATIENCE
    no_room(books)
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
    ids=["another's", "gated", "finished"],
)
def test_who_is_not_ours_to_place_may_wait(books: Books, clock: Clock, other: dict[str, Any]) -> None:
    """For ever."""
    books.set_pod(other)
    for clock.now in (0.0, PATIENCE + 1):
        books.tick()
    assert kinds(books) == []


def test_a_list_after_a_gap_is_taken_as_one_moment(books: Books) -> None:
    """Who made room and who took it meanwhile are not held against each other; what changed for one pod is."""
    books.set_pod(holding("a", memory=MIB))
    books.replace_pods([holding("b", memory=MIB)])
    assert kinds(books) == []
    assert books.used()["n1-0"] == Use(MIB, 100, 1)
    books.replace_pods([holding("b", memory=MIB), holding("c", memory=MIB)])
    assert kinds(books) == [Kind.OVER_CAPACITY]
    books.replace_pods([pod("b", on="n1", shares={"main": [share("n1-1")]}), holding("c", memory=MIB)])
    assert Kind.BOUND_TWICE in kinds(books)


def test_init_containers_count_beside_sidecars(books: Books) -> None:
    """The larger of what runs together at the end and of each step before it."""
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
def test_over_capacity_is_seen_exactly_when_it_is(steps: list[tuple[int, int, int]]) -> None:
    """Whatever comes and goes in whatever order: reported if and only if the sum ever exceeds the card."""
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
