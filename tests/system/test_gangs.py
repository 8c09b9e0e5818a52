"""Gangs on a real API server: all pods get nodes, or none, and nothing is reserved while they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM
from cluster.resource import GPU_CLAIMS
from lab import wait
from lab.client import client
from tests.support.foreign_policies import refusing
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, scheduler_api
from tests.system.support.gpubindings import NODE_A

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
CARDS = 8
"""Of each of the two nodes."""
ONE = {
    "apiVersion": GPU_CLAIMS.api_version,
    "kind": GPU_CLAIMS.kind,
    "metadata": {"name": "one"},
    "spec": {"devices": {"count": 1}},
}


@pytest.fixture(scope="module", autouse=True)
def nodes(tranche: Layout) -> Iterator[None]:
    """Two nodes of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield


@pytest.fixture
def team(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace with a claim for an exclusive card, from which all pods go before the next test begins."""
    made = make_namespace()
    made.create(ONE)
    yield made
    made.empty()


def member(name: str, gang: str, *, size: int = 4, node: str = NODE_A, **annotations: str) -> dict[str, Any]:
    """Return a pod of a gang that has a card to itself."""
    made = pod(name, node=node, gpu=1, labels={"gpu.scheduling/gang": gang})
    made["metadata"]["annotations"] = {
        CLAIM: "one",
        "gpu.scheduling/gang-min-members": str(size),
        **{f"gpu.scheduling/gang-{key}": value for key, value in annotations.items()},
    }
    return made


def leases(team: Namespace) -> list[str]:
    """Return the pods of the namespace that have the Lease of a card."""
    found = client(team.layout).list("leases", namespace="tranche-system", labels="gpu.scheduling/managed=true")
    refs = (each["metadata"]["annotations"]["gpu.scheduling/pod-ref"] for each in found)
    return sorted(ref for ref in refs if ref.startswith(f"{team.name}/"))


def held(team: Namespace) -> set[str]:
    """Return the pods of the namespace that hold cards, as the scheduler counts them."""
    pods = scheduler_api.query(team.layout, "/api/allocation")["allocation"]
    return {name for name in pods if name.startswith(f"{team.name}/")}


def _waits(team: Namespace, name: str, words: str) -> None:
    """Wait until the condition of a pod has these words."""
    wait.until(lambda: words in team.unplaced(name), what=f"why {name} waits: {words}", timeout_s=PATIENCE_S)


def fill(team: Namespace, count: int) -> None:
    """Take some cards of node A."""
    filled = [pod(f"fills-{index}", node=NODE_A, gpu=1) for index in range(count)]
    team.create(*filled)
    team.placed(count)


def test_four_pods_with_room_for_three_hold_nothing_until_there_is_room(team: Namespace) -> None:
    """No Lease, no card, and a condition on each pod; a card that becomes free is enough for all four."""
    fill(team, CARDS - 3)
    team.create(*(member(f"m{index}", "train") for index in range(4)))
    for index in range(4):
        _waits(team, f"m{index}", "3 of the 4 pods that gang")
    assert leases(team) == []
    assert held(team) == {f"{team.name}/fills-{index}" for index in range(CARDS - 3)}
    team.delete("pod", "fills-0", grace_s=1)
    team.placed(CARDS - 4 + 4)
    assert leases(team) == [f"{team.name}/m{index}" for index in range(4)]


def test_of_two_gangs_on_six_cards_one_runs_and_then_the_other(team: Namespace) -> None:
    """Created pod by pod in turn, so that neither is complete before the other."""
    fill(team, CARDS - 6)
    for index in range(4):
        team.create(member(f"a{index}", "a"), member(f"b{index}", "b"))
    placed = team.placed(CARDS - 6 + 4)
    first = {name[0] for each in placed if not (name := each["metadata"]["name"]).startswith("fills")}
    assert len(first) == 1
    assert len(leases(team)) == 4
    team.delete("pod", *(f"{gang}{index}" for gang in first for index in range(4)), grace_s=1)
    team.placed(CARDS - 6 + 4)


def test_a_policy_that_refuses_one_pod_keeps_all_of_its_gang_from_being_bound(team: Namespace) -> None:
    """The dry run meets it: no Binding is written, no Lease is left; without the policy all four are bound."""
    with refusing(team.layout, "binding", namespace=team.name, name="m2"):
        team.create(*(member(f"m{index}", "train") for index in range(4)))
        reasons = ("BindingFailed", "GangIncomplete")
        team.until(
            lambda events: {each["reason"] for each in events.values()}.issuperset(reasons) or None,
            "events",
            what="the events of the refusal",
        )
        wait.until(lambda: not leases(team), what="the end of the Leases", timeout_s=PATIENCE_S)
        assert not any(each["spec"].get("nodeName") for each in team.pods())
    team.placed(4)


def test_pods_of_a_gang_wait_for_the_last_one(team: Namespace) -> None:
    """Also for one with a scheduling gate, which does not count until it is removed."""
    gated = member("m3", "train")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    team.create(*(member(f"m{index}", "train") for index in range(3)), gated)
    _waits(team, "m0", "needs 4 pods, and fewer exist")
    team.patch("pod", "m3", {"spec": {"schedulingGates": None}})
    team.placed(4)


def test_gangs_that_never_start_keep_no_other_pod_waiting(
    team: Namespace, make_namespace: Callable[..., Namespace]
) -> None:
    """One that is too large for the cluster, one of a size that is never reached, and many small ones."""
    hostile = make_namespace()
    hostile.create(ONE)
    try:
        hostile.create(*(member(f"large-{index}", "large", size=CARDS + 1) for index in range(CARDS + 1)))
        hostile.create(*(member(f"never-{index}", "never", size=2048) for index in range(20)))
        hostile.create(*(member(f"small-{index}", f"small-{index}", size=2) for index in range(20)))
        _waits(hostile, "large-0", "of the 9 pods that gang")
        for index in range(3):
            team.create(pod(f"single-{index}", node=NODE_A, gpu=1))
        team.create(*(member(f"m{index}", "train") for index in range(4)))
        team.placed(3 + 4)
        assert leases(hostile) == []
    finally:
        hostile.empty()


def test_equal_names_in_two_namespaces_are_two_gangs(team: Namespace, make_namespace: Callable[..., Namespace]) -> None:
    """Two pods of four in each: no gang is complete."""
    other = make_namespace()
    other.create(ONE)
    try:
        for each in (team, other):
            each.create(*(member(f"m{index}", "train") for index in range(2)))
        for each in (team, other):
            _waits(each, "m0", "needs 4 pods, and fewer exist")
            assert leases(each) == []
    finally:
        other.empty()


def test_an_incomplete_gang_with_a_timeout_is_evicted_whole(team: Namespace) -> None:
    """Two pods run, and a third one says that four are needed: after the timeout the two are evicted."""
    team.create(*(member(f"m{index}", "train", size=2, timeout="3s") for index in range(2)))
    team.placed(2)
    team.create(member("m2", "train", size=4, timeout="3s"))
    team.until(
        lambda events: any(each["reason"] == "GangSchedulingTimeout" for each in events.values()) or None,
        "events",
        what="the event of the timeout",
    )
    team.until(lambda pods: set(pods) == {"m2"} or None, what="the eviction of both pods")
