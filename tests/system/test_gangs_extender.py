"""Gangs behind a stock kube-scheduler: it brings pod by pod, and the extender binds all of a gang, or none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM
from cluster.resource import GPU_CLAIMS
from lab import kubectl, wait
from lab.client import client
from tests.support import namespaces
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import pairs, scheduler_api, truth
from tests.system.support.gpubindings import placed
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE, TEAM, OTHER = "node-a", "team", "other"
CARDS = pairs.CARDS
ONE = {
    "apiVersion": GPU_CLAIMS.api_version,
    "kind": GPU_CLAIMS.kind,
    "metadata": {"name": "one"},
    "spec": {"devices": {"count": 1}},
}


@pytest.fixture(scope="module")
def extended(uts_support: None, empty_cluster: Layout) -> Layout:
    """A node of eight cards, one pair, and two namespaces with a claim for an exclusive card."""
    pairs.up(empty_cluster, [NODE])
    Pair(empty_cluster, 0).start()
    for name in (TEAM, OTHER):
        namespaces.create(empty_cluster, name, {"gpu.scheduling/injection": "enabled"})
        Namespace(empty_cluster, name).create(ONE)
    return empty_cluster


@pytest.fixture
def other(extended: Layout) -> Iterator[Namespace]:
    """A namespace of another tenant; its pods are deleted after the test."""
    made = Namespace(extended, OTHER)
    yield made
    made.empty()


@pytest.fixture
def team(extended: Layout) -> Iterator[Namespace]:
    """The namespace; its pods are deleted after the test."""
    made = Namespace(extended, TEAM)
    yield made
    made.empty()


def member(name: str, gang: str, *, size: int = 4, **spec: Any) -> dict[str, Any]:
    """Return a pod of a gang that has a card to itself."""
    made = pod(name, gpu=1, labels={"gpu.scheduling/gang": gang})
    made["metadata"]["annotations"] = {CLAIM: "one"}
    if size:
        made["metadata"]["annotations"]["gpu.scheduling/gang-min-members"] = str(size)
    made["spec"] |= spec
    return made


def fill(team: Namespace, count: int) -> None:
    """Take some cards."""
    team.create(*(pod(f"fills-{index}", gpu=1) for index in range(count)))
    team.placed(count)


def leases(team: Namespace) -> list[str]:
    """Return the pods of the namespace that have the Lease of a card."""
    found = client(team.layout).list("leases", namespace="tranche-system", labels="gpu.scheduling/managed=true")
    refs = (each["metadata"]["annotations"]["gpu.scheduling/pod-ref"] for each in found)
    return sorted(ref for ref in refs if ref.startswith(f"{team.name}/"))


def used_cards(team: Namespace) -> int:
    """Return how many cards the leader counts as used, reserved ones too."""
    samples = scheduler_api.metrics(Pair(team.layout, 0).url)["hami_gpu_shared_count"]
    return sum(sample.value > 0 for sample in samples)


def waits(team: Namespace, name: str, words: str) -> None:
    """Wait until the condition of a pod has these words."""
    wait.until(lambda: words in team.unplaced(name), what=f"why {name} waits: {words}", timeout_s=PATIENCE_S)


def test_four_pods_with_room_for_three_hold_nothing_until_there_is_room(team: Namespace) -> None:
    """Nothing is bound, no Lease exists and no card is counted; with one more card all four are bound."""
    fill(team, CARDS - 3)
    team.create(*(member(f"m{index}", "train") for index in range(4)))
    # kube-scheduler keeps the reason of a pod that it offered before the last one was created.
    words = "3 of the 4 pods that gang team/train needs have a place"
    wait.until(
        lambda: any(words in team.unplaced(f"m{index}") for index in range(4)),
        what=f"why the gang waits: {words}",
        timeout_s=PATIENCE_S,
    )
    assert leases(team) == []
    assert used_cards(team) == CARDS - 3
    assert not any(each["spec"].get("nodeName") for each in team.pods() if each["metadata"]["name"].startswith("m"))
    team.delete("pod", "fills-0", grace_s=1)
    team.placed(CARDS - 4 + 4)
    assert leases(team) == [f"team/m{index}" for index in range(4)]
    truth.recount(team.layout)


def test_of_two_gangs_on_six_cards_one_runs_and_then_the_other(team: Namespace) -> None:
    """Created pod by pod in turn, so that neither is complete before the other."""
    fill(team, CARDS - 6)
    for index in range(4):
        team.create(member(f"a{index}", "a"), member(f"b{index}", "b"))
    running = team.placed(CARDS - 6 + 4)
    first = {name[0] for each in running if not (name := each["metadata"]["name"]).startswith("fills")}
    assert len(first) == 1
    assert len(leases(team)) == 4
    team.delete("pod", *(f"{gang}{index}" for gang in first for index in range(4)), grace_s=1)
    team.placed(CARDS - 6 + 4)
    truth.recount(team.layout)


def test_pod_that_kube_scheduler_rejects_costs_the_time_to_gather(team: Namespace, other: Namespace) -> None:
    """No volume has the pod's claim: the others wait until their time is over. Then another tenant's gang is next.

    The extender does not evaluate volumes, so it does not see beforehand that the gang cannot be complete.
    """
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    team.create(*(member(f"m{index}", "train") for index in range(3)), member("m3", "train", volumes=[claim]))
    wait.until(lambda: used_cards(team) == 3, what="three reserved cards", timeout_s=PATIENCE_S)
    other.create(*(member(f"o{index}", "other") for index in range(4)))
    begin = time.monotonic()
    other.placed(4)
    assert time.monotonic() - begin < 60
    wait.until(
        lambda: any("has not gathered in 20 s" in each.get("message", each.get("note", "")) for each in events(team)),
        what="the event of the gang that did not gather",
        timeout_s=PATIENCE_S,
    )
    assert not any(each["spec"].get("nodeName") for each in team.pods())
    assert leases(team) == []


def events(team: Namespace) -> list[dict[str, Any]]:
    """Return the events of the namespace."""
    return team.list("events")


def test_pods_of_a_gang_without_a_size_pass(team: Namespace) -> None:
    """Each by itself, and the pods that come after a gang is satisfied, too."""
    team.create(member("free", "loose", size=0))
    placed(team, "free")
    team.create(*(member(f"m{index}", "train", size=2) for index in range(2)))
    team.placed(3)
    team.create(member("late", "train", size=2))
    placed(team, "late", timeout_s=pairs.SOON_S)


def test_leader_that_is_killed_while_a_gang_gathers_leaves_nothing(team: Namespace) -> None:
    """The pods that have come are forgotten; when the fourth can come, the next leader binds all."""
    gate = [{"name": "example.com/later"}]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    team.create(*(member(f"m{index}", "train") for index in range(3)), member("m3", "train", volumes=[claim]))
    wait.until(lambda: used_cards(team) == 3, what="three reserved cards", timeout_s=PATIENCE_S)
    pair = Pair(team.layout, 0)
    pair.kill()
    pair.start()
    team.delete("pod", "m3", grace_s=0)
    assert not any(each["spec"].get("nodeName") for each in team.pods())
    assert leases(team) == []
    team.create(member("m4", "train", schedulingGates=gate))
    kubectl.run(team.layout, "-n", TEAM, "patch", "pod", "m4", "--type=json", "-p", _WITHOUT_GATES)
    team.placed(4)
    assert len(leases(team)) == 4
    truth.recount(team.layout)


_WITHOUT_GATES = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
