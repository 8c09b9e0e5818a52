"""The checker's books about gangs, and the gangs of the load."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from chaos.gangs import SIZE
from chaos.load import Load, members
from chaos.violation import Kind
from tests.chaos.support.objects import pod, share
from tests.chaos.test_books import PATIENCE, Clock, holding, kinds, opened

if TYPE_CHECKING:
    from chaos.books import Books
    from cluster.api import Api


def of_gang(content: dict[str, Any], gang: str = "g") -> dict[str, Any]:
    """Return a pod of a gang."""
    content["metadata"]["annotations"]["gpu.scheduling/gang"] = gang
    return content


def watched(*pods: dict[str, Any]) -> tuple[Clock, Books]:
    """Return books that have observed some pods for just less than their patience."""
    clock = Clock()
    books = opened(clock)
    for each in pods:
        books.set_pod(each)
    books.tick()
    clock.now += PATIENCE
    books.tick()
    assert kinds(books) == []
    return clock, books


def test_a_gang_that_stays_half_placed_is_reported_once() -> None:
    """Two of its pods have nodes, and the third waits."""
    clock, books = watched(of_gang(holding("a")), of_gang(holding("b", card="n1-1")), of_gang(pod("c")))
    clock.now += 1
    books.tick()
    books.tick()
    assert kinds(books) == [Kind.HALF_A_GANG]


@pytest.mark.parametrize(
    "pods",
    [
        [of_gang(pod(name)) for name in "abc"],
        [of_gang(holding(name, card=card)) for name, card in (("a", "n1-0"), ("b", "n1-0"), ("c", "n1-1"))],
        [of_gang(holding("a")), of_gang(pod("b"))],
        [of_gang(holding("a")), of_gang(pod("b")), of_gang(pod("c", deletionTimestamp="now"))],
        [of_gang(holding("a")), of_gang(pod("b", phase="Failed")), of_gang(pod("c"))],
        [of_gang(holding("a")), of_gang(pod("b")), of_gang(pod("c"), "other")],
    ],
    ids=["all wait", "all have nodes", "one is missing", "one is leaving", "one has ended", "another gang"],
)
def test_other_gangs_are_not_reported(pods: list[dict[str, Any]]) -> None:
    """Nor do pods of a gang wait too long that would fit by themselves."""
    if pods[-1]["spec"].pop("deletionTimestamp", None):
        pods[-1]["metadata"]["deletionTimestamp"] = "now"
    clock, books = watched(*pods)
    clock.now += 10 * PATIENCE
    books.tick()
    assert kinds(books) == []


def test_a_gang_that_is_completed_in_time_begins_anew() -> None:
    """The time counts while it is half placed."""
    clock, books = watched(of_gang(holding("a")), of_gang(holding("b", card="n1-1")), of_gang(pod("c")))
    books.set_pod(of_gang(holding("c", card="n1-1")))
    clock.now += 1
    books.tick()
    assert kinds(books) == []


def test_a_gang_is_evicted_on_all_of_its_nodes() -> None:
    """A pod of higher priority needs the node of one of its pods; on other nodes, nothing else is evicted."""
    books = opened(Clock())
    on_another = pod("b", on="n2", shares={"main": [share("n2-0")]})
    books.set_pod(of_gang(holding("a")))
    books.set_pod(of_gang(on_another))
    preemptor = pod("high", priority=9)
    preemptor["status"]["nominatedNodeName"] = "n1"
    books.set_pod(preemptor)
    evicted = {"conditions": [{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}], "phase": "Running"}
    books.set_pod({**of_gang(on_another), "status": evicted})
    assert Kind.WRONG_VICTIM not in kinds(books)
    single = pod("single", on="n2", shares={"main": [share("n2-1")]})
    books.set_pod(single)
    books.set_pod({**single, "status": evicted})
    assert Kind.WRONG_VICTIM in kinds(books)


def test_the_pods_of_a_gang_come_and_go_together() -> None:
    """All have the gang and its size; if one of them is chosen to be deleted, all are."""
    books = opened(Clock())
    draw = Random(1)  # noqa: S311 -- not a secret
    load = Load(cast("Api", None), namespace="ns", books=books, draw=draw, rate=1, claims=0, gangs=1, population=1)
    created = load._next("p1")
    assert created == members("p1")
    names = [each["metadata"]["name"] for each in created]
    assert len(names) == SIZE
    assert {str(each["metadata"]["annotations"]) for each in created} == {
        str({"gpu.scheduling/gang": "p1", "gpu.scheduling/gang-min-members": str(SIZE)})
    }
    load._living = dict.fromkeys(names)
    assert load._choose() == names
    load.gangs = 0
    assert len(load._next("p2")) == 1
