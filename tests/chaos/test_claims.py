"""The checker's books of GpuClaims and Leases of cards: every broken promise is reported, and nothing else is."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from chaos.books import Books
from chaos.load import manifest
from chaos.share import ALLOCATION, Use
from chaos.violation import Kind
from tests.chaos.support.objects import MIB, SLOTS, card_lease, claim, limits, node, pod, share
from tests.chaos.test_books import LEASE_SECONDS, PATIENCE, Clock, holding, kinds, opened

WHOLE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100"}
CARD = {"nvidia.com/gpu": "1"}


@pytest.fixture
def clock() -> Clock:
    """A clock that begins at 0."""
    return Clock()


@pytest.fixture
def books(clock: Clock) -> Books:
    """Books with a node of two idle cards and a claim of each kind."""
    books = opened(clock)
    for each in (
        claim("exclusive"),
        claim("shared", exclusivity="Shared"),
        claim("part", exclusivity="Shared", memoryMiB=4000, cores=20),
        claim("mig", exclusivity="MIG", profile="1g.5gb"),
    ):
        books.set_claim(each)
    return books


def exclusive(name: str = "e", *cards: int, version: int = 2, **more: Any) -> dict[str, Any]:
    """Return a bound pod with an Exclusive claim for card 0, or for other cards."""
    shares = {"main": [share(f"n1-{card}", MIB, 1000) for card in cards or (0,)]}
    return pod(name, on="n1", shares=shares, asks=WHOLE, claimed=("exclusive", "Exclusive"), version=version, **more)


def shared(name: str = "s", **more: Any) -> dict[str, Any]:
    """Return a bound pod with a Shared claim that limits nothing."""
    return pod(name, on="n1", shares={"main": [share(memory=0, cores=0)]}, asks=CARD, claimed=("shared", "Shared"))


def after(books: Books, clock: Clock, *seconds: float) -> None:
    """Let the clock reach each time, and tick."""
    for clock.now in seconds:
        books.tick()


# ---- cards -----------------------------------------------------------------------------------------------------------


def test_a_correct_life_with_a_claim_is_not_a_violation(books: Books, clock: Clock) -> None:
    """The Lease is created, the pod is bound, runs and is deleted, and then its Lease is."""
    books.set_pod(pod("e", asks=WHOLE, claimed=("exclusive", "Exclusive")))
    books.leases.set_lease(card_lease("e", version=2))
    after(books, clock, 1.0, 10.0)
    books.set_pod(exclusive("e", version=3))
    assert books.used()["n1-0"] == Use(MIB, 1000, SLOTS), "as in the ledger, the whole card"
    books.set_pod(exclusive("e", version=9, phase="Running"))
    after(books, clock, 20.0, 200.0)
    books.drop_pod(exclusive("e", version=10))
    after(books, clock, 201.0, 201.0 + LEASE_SECONDS)
    books.leases.drop_lease(card_lease("e", version=2))
    after(books, clock, 400.0)
    assert books.used()["n1-0"] == Use()
    assert books.violations == []


@pytest.mark.parametrize("other", [holding("o", memory=1, cores=0), shared("o"), exclusive("o")])
@pytest.mark.parametrize("first", ["exclusive", "other"])
def test_an_exclusive_card_with_another_pod_is_reported(books: Books, first: str, other: dict[str, Any]) -> None:
    """Whatever the other one takes, even nothing but the card's name, and whichever is bound first."""
    pods = [exclusive(), other] if first == "exclusive" else [other, exclusive()]
    books.set_pod(pods[0])
    assert kinds(books) == []
    books.set_pod(pods[1])
    found = next(each for each in books.violations if each.kind is Kind.SHARED_EXCLUSIVE)
    assert found.subject == "n1-0"
    assert "['ns/e', 'ns/o']" in found.details


def test_an_exclusive_card_beside_a_used_one_is_not_a_violation(books: Books) -> None:
    """Another card of the node may be shared, and an ended pod holds none."""
    books.set_pod({**holding("o"), "status": {"phase": "Succeeded"}})
    books.set_pod(exclusive("e", 0))
    books.set_pod(holding("p", card="n1-1"))
    assert books.violations == []


def test_each_card_of_a_claim_counts_once(books: Books) -> None:
    """Two containers see the card; the pod takes its amounts once."""
    second = {"name": "second", "resources": {"limits": limits(memory=4000, cores=20)}}
    both = pod("p", asks=limits(memory=4000, cores=20), claimed=("part", "Shared"), on="n1")
    both["spec"]["containers"].append(second)
    record = {"v": 1, "node": "n1", "claim": {"name": "part", "exclusivity": "Shared"}}
    shares = {name: [share(memory=4000, cores=200)] for name in ("main", "second")}
    both["metadata"]["annotations"][ALLOCATION] = json.dumps({**record, "containers": shares})
    books.set_pod(both)
    assert books.used()["n1-0"] == Use(4000, 200, 1)
    assert books.violations == []
    shares["second"] = [share("n1-1", memory=4000, cores=200)]
    both["metadata"]["annotations"][ALLOCATION] = json.dumps({**record, "containers": shares})
    both["metadata"] |= {"name": "wrong", "uid": "wrong"}
    books.set_pod(both)
    assert kinds(books) == [Kind.WRONG_ALLOCATION]


def test_shared_claims_have_as_many_pods_as_slots(books: Books) -> None:
    """They take nothing but slots."""
    for number in range(SLOTS):
        books.set_pod(shared(f"s{number}"))
    assert books.violations == []
    books.set_pod(shared("more"))
    assert kinds(books) == [Kind.OVER_CAPACITY]


@pytest.mark.parametrize(
    "wrong",
    [
        pod(on="n1", shares={"main": [share(memory=MIB, cores=1000)]}, asks=WHOLE, claimed=("exclusive", "Shared")),
        pod(on="n1", shares={"main": [share(memory=MIB, cores=1000)]}, asks=WHOLE, claimed=("unknown", "Exclusive")),
        pod(
            on="n1",
            shares={"main": [share(memory=MIB - 1, cores=1000)]},
            asks=WHOLE,
            claimed=("exclusive", "Exclusive"),
        ),
        pod(on="n1", shares={"main": [share(memory=1, cores=0)]}, asks=CARD, claimed=("shared", "Shared")),
        pod(
            on="n1",
            shares={"main": [share(), share("n1-1")]},
            asks=CARD,
            claimed=("part", "Shared"),
        ),
    ],
    ids=["exclusivity", "unknown claim", "not whole", "more than the claim", "too many cards"],
)
def test_an_allocation_that_differs_from_the_claim_is_reported(books: Books, wrong: dict[str, Any]) -> None:
    """The claim decides, as the API server shows it."""
    books.set_pod(wrong)
    assert set(kinds(books)) == {Kind.WRONG_ALLOCATION}


def test_an_allocation_without_its_claim_is_reported(books: Books) -> None:
    """A scheduler that ignores the annotation leaves this state; one for another pod's claim is the reverse."""
    ignored = pod("i", on="n1", shares={"main": [share(memory=MIB, cores=1000)]}, asks=WHOLE)
    ignored["metadata"]["annotations"]["gpu.scheduling/claim"] = "exclusive"
    books.set_pod(ignored)
    invented = exclusive("j", 1)
    del invented["metadata"]["annotations"]["gpu.scheduling/claim"]
    books.set_pod(invented)
    assert [(each.kind, each.subject) for each in books.violations] == [
        (Kind.WRONG_ALLOCATION, "ns/i"),
        (Kind.WRONG_ALLOCATION, "ns/j"),
    ]


def test_an_exclusive_pod_may_wait_for_an_idle_card(books: Books, clock: Clock) -> None:
    """Two cards with a Shared pod each are not idle; one idle card is enough for two containers."""
    for number in range(2):
        one = shared(f"s{number}")
        text = one["metadata"]["annotations"][ALLOCATION].replace("n1-0", f"n1-{number}")
        one["metadata"]["annotations"][ALLOCATION] = text
        books.set_pod(one)
    waiting = pod("e", asks=WHOLE, claimed=("exclusive", "Exclusive"))
    waiting["spec"]["containers"].append({"name": "second", "resources": {"limits": WHOLE}})
    books.set_pod(waiting)
    after(books, clock, 0.0, PATIENCE + 1)
    assert kinds(books) == []
    books.drop_pod(shared("s0"))
    after(books, clock, 100.0, 101.0 + PATIENCE)
    assert kinds(books) == [Kind.WAITS]


def test_no_pod_waits_for_an_exclusive_card(books: Books, clock: Clock) -> None:
    """It has no room for others; neither does a pod wait whose claim does not exist."""
    books.set_pod(exclusive("e", 0))
    books.set_pod(exclusive("f", 1))
    for number in range(2):
        books.leases.set_lease(card_lease("ef"[number], number))
    books.set_pod(pod("p", asks=CARD, claimed=("shared", "Shared")))
    books.set_pod(pod("q", asks=CARD, claimed=("gone", "Shared")))
    after(books, clock, 0.0, PATIENCE + 1)
    assert kinds(books) == []


# ---- Leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "has",
    [[], [card_lease("other")], [card_lease("e", 1)]],
    ids=["none", "another pod's", "for another card"],
)
def test_a_pod_without_its_lease_is_reported(books: Books, clock: Clock, has: list[dict[str, Any]]) -> None:
    """Once, after the time that a new leader may need; a Lease with another holder or card does not count."""
    books.set_pod(exclusive())
    for each in has:
        books.leases.set_lease(each)
    after(books, clock, 0.0, LEASE_SECONDS)
    assert kinds(books) == []
    after(books, clock, LEASE_SECONDS + 1, LEASE_SECONDS + 2)
    assert [each for each in books.violations if each.kind is Kind.NO_LEASE] == [
        (Kind.NO_LEASE, "ns/e", "no Lease says that it has n1-0")
    ]


def test_a_lease_that_returns_in_time_is_enough(books: Books, clock: Clock) -> None:
    """The leader creates a missing Lease; if that one is lost too, the time starts from 0."""
    books.leases.set_lease(card_lease("e"))
    books.set_pod(exclusive())
    books.leases.drop_lease(card_lease("e"))
    after(books, clock, 0.0, LEASE_SECONDS)
    books.leases.set_lease(card_lease("e", version=99))
    after(books, clock, LEASE_SECONDS + 1)
    books.leases.drop_lease(card_lease("e"))
    after(books, clock, LEASE_SECONDS + 2, 2 * LEASE_SECONDS)
    assert kinds(books) == []


def test_a_pod_bound_before_its_lease_is_reported(books: Books, clock: Clock) -> None:
    """The version of the cluster tells which write came first, whatever the order in which the watches show them."""
    books.set_pod(exclusive("e", version=5))
    books.leases.set_lease(card_lease("e", version=4))
    after(books, clock, 0.0)
    assert kinds(books) == []
    books.set_pod(exclusive("late", 1, version=5))
    books.set_pod(exclusive("late", 1, version=8, phase="Running"))
    books.leases.set_lease(card_lease("late", 1, version=6))
    after(books, clock, 1.0)
    assert [(each.kind, each.subject) for each in books.violations] == [(Kind.NO_LEASE, "ns/late")]


@pytest.mark.parametrize("unleased", [shared(), holding("p"), pod("w", asks=WHOLE, claimed=("exclusive", "Exclusive"))])
def test_other_pods_need_no_lease(books: Books, clock: Clock, unleased: dict[str, Any]) -> None:
    """Only a bound pod that has its cards alone does, on a node that exists."""
    books.set_pod(unleased)
    books.set_pod(exclusive("e", 1))
    books.fleet.drop_node(node())
    after(books, clock, 0.0, LEASE_SECONDS + 1)
    assert kinds(books) == []


def test_the_pod_of_an_instance_needs_a_lease(books: Books, clock: Clock) -> None:
    """Its amounts are those of the instance, at least what it requests."""
    books.set_pod(pod("m", on="n1", shares={"main": [share(memory=9000)]}, asks=CARD, claimed=("mig", "MIG")))
    after(books, clock, 0.0, LEASE_SECONDS + 1)
    assert kinds(books) == [Kind.NO_LEASE]


@pytest.mark.parametrize(
    "now",
    [
        None,
        exclusive("e", 0, phase="Succeeded"),
        exclusive("e", 1),
        shared("e"),
    ],
    ids=["gone", "ended", "bound to another card", "shares the card"],
)
def test_a_lease_without_its_pod_is_reported(books: Books, clock: Clock, now: dict[str, Any] | None) -> None:
    """After a minute and a bit, so that a crashed leader's Leases keep no pod out for good."""
    if now is not None:
        books.set_pod(now)
    books.leases.set_lease(card_lease("e", version=1))
    after(books, clock, 0.0, LEASE_SECONDS)
    assert kinds(books) == []
    assert any(each.kind is Kind.DEAD_HOLDER for each in books.leases.differences), "what the end of a run waits for"
    after(books, clock, LEASE_SECONDS + 1, LEASE_SECONDS + 2)
    assert [each.subject for each in books.violations if each.kind is Kind.DEAD_HOLDER] == ["gpu-n1-0"]


def test_the_lease_of_a_pod_about_to_be_bound_is_right(books: Books, clock: Clock) -> None:
    """Its Binding may be delayed for as long as the API server is away."""
    books.set_pod(pod("e", asks=WHOLE, claimed=("exclusive", "Exclusive")))
    books.leases.set_lease(card_lease("e"))
    books.set_pod(exclusive("f", 1))
    books.leases.set_lease(card_lease("f", 1))
    after(books, clock, 0.0, 50.0)
    assert Kind.DEAD_HOLDER not in kinds(books)


def test_a_card_held_twice_is_reported_at_once(books: Books) -> None:
    """By two Leases under different names, as after a shift of the indexes, or by one that passes to another pod."""
    books.leases.set_lease(card_lease("e"))
    books.leases.set_lease(card_lease("e"))
    assert kinds(books) == []
    books.leases.set_lease(card_lease("f", name="gpu-n1-7"))
    books.leases.set_lease(card_lease("g", 1, uid="one"))
    books.leases.set_lease(card_lease("h", 1, uid="one"))
    assert [(each.kind, each.subject) for each in books.violations] == [
        (Kind.HELD_TWICE, "n1-0"),
        (Kind.HELD_TWICE, "n1-1"),
    ]


def test_the_next_lease_of_the_same_name_may_be_for_another_pod(books: Books) -> None:
    """Also if its deletion was not observed: the UID distinguishes the two Leases."""
    books.leases.set_lease(card_lease("e"))
    books.leases.drop_lease(card_lease("e"))
    books.leases.set_lease(card_lease("f"))
    books.leases.set_lease(card_lease("g"))
    assert kinds(books) == []


# ---- the load --------------------------------------------------------------------------------------------------------


def test_the_share_of_pods_with_claims_is_a_setting() -> None:
    """The claim decides, so none of them states amounts; with the setting at 0 no pod has a claim."""
    draw = Random(1)  # noqa: S311 -- not a secret
    pods = [manifest(f"p{number}", draw, claims=0.1) for number in range(2000)]
    claimed = [each for each in pods if "annotations" in each["metadata"]]
    assert 140 < len(claimed) < 260
    names = {each["metadata"]["annotations"]["gpu.scheduling/claim"] for each in claimed}
    assert {"exclusive", "shared"} < names
    stated = {name for each in claimed for one in each["spec"]["containers"] for name in one["resources"]["limits"]}
    assert stated == {"nvidia.com/gpu"}
    assert not any("annotations" in manifest("p", draw, claims=0.0)["metadata"] for _ in range(100))
