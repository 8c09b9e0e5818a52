"""Preemption behind a stock kube-scheduler: Tranche evicts for cards, kube-scheduler for CPU, and both for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import wait
from tests.support import namespaces
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace
from tests.system.support import pairs, preemptions
from tests.system.support.gpubindings import placed
from tests.system.support.gpuquotas import delete_quota, set_quota
from tests.system.support.pairs import Pair
from tests.system.support.preemptions import evicted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE, TEAM = "node-a", "team"


@pytest.fixture(scope="module")
def extended(uts_support: None, empty_cluster: Layout) -> Iterator[Layout]:
    """A node of eight cards, one pair, a namespace, and PriorityClasses."""
    pairs.up(empty_cluster, [NODE])
    Pair(empty_cluster, 0).start()
    namespaces.create(empty_cluster, TEAM, {"gpu.scheduling/injection": "enabled"})
    with preemptions.priorities(empty_cluster):
        yield empty_cluster


@pytest.fixture
def team(extended: Layout) -> Iterator[Namespace]:
    """The namespace; its pods are deleted after the test."""
    made = Namespace(extended, TEAM)
    yield made
    made.api.delete_all("pods", namespace=made.name, grace_s=1)
    made.api.delete_all("events", namespace=made.name)


def asking(name: str, priority: str = "", *, cpu: str = "", **fields: Any) -> dict[str, Any]:
    """Return a pod that asks for whole cards of the node, and for CPU."""
    made = preemptions.asking(name, priority, **fields)
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    if cpu:
        made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    return made


def fill(team: Namespace, **fields: Any) -> list[str]:
    """Let pods of priority 0 take all cards."""
    names = [f"low-{number}" for number in range(pairs.CARDS)]
    team.create(*(asking(name, **fields) for name in names))
    for name in names:
        placed(team, name)
    return names


def test_a_pod_that_lacks_only_a_card_preempts_for_it(team: Namespace) -> None:
    """kube-scheduler never asks about that; it binds the pod as soon as the victim is gone."""
    fill(team)
    team.create(asking("important", "high"))
    placed(team, "important")
    assert len(evicted(team, 1)) == 1


def test_pods_of_equal_priority_wait(team: Namespace) -> None:
    """And those that never preempt."""
    team.create(*(asking(f"middle-{number}", "middle") for number in range(pairs.CARDS)))
    team.placed(pairs.CARDS)
    team.create(asking("equal", "middle"), asking("patient", "patient"))
    for name in ("equal", "patient"):
        team.unplaced(name)
    team.create(asking("important", "high"))
    placed(team, "important")
    assert len(evicted(team, 1)) == 1
    assert not any("nodeName" in team.pod(name)["spec"] for name in ("equal", "patient"))


def test_cpu_and_a_card_take_two_victims(team: Namespace) -> None:
    """kube-scheduler chooses the pod that uses the CPU, and the extender adds one for its card."""
    cpu = asking("cpu", cpu="60")
    cpu["spec"]["containers"][0]["resources"].pop("limits")
    cpu["spec"]["schedulerName"] = "tranche"
    team.create(cpu)
    placed(team, "cpu")
    names = fill(team)
    team.create(asking("important", "high", cpu="10"))
    placed(team, "important")
    left = {each["metadata"]["name"] for each in team.pods()}
    assert "cpu" not in left
    assert len({*names} - left) == 1


def test_a_nominee_keeps_the_card_of_its_victim(team: Namespace) -> None:
    """Pods of equal or lower priority never get it, however often kube-scheduler tries them."""
    fill(team, stays=True)
    team.create(asking("important", "high"))
    (victim,) = preemptions.leaving(team)
    nominated = wait.until(
        lambda: team.pod("important")["status"].get("nominatedNodeName"), what="the nomination", timeout_s=PATIENCE_S
    )
    assert nominated == NODE
    team.create(asking("equal", "patient"), asking("lower"))
    for name in ("equal", "lower"):
        team.unplaced(name)
    preemptions.let_go(team)
    placed(team, "important")
    assert evicted(team, 1) == {victim["metadata"]["name"]}
    assert not any("nodeName" in team.pod(name)["spec"] for name in ("equal", "lower"))


def test_max_pods_full_and_a_victim(team: Namespace) -> None:
    """Seven cards are free; the quota allows one pod."""
    set_quota(team, "quota", total={"maxPods": 1})
    team.create(asking("low"))
    placed(team, "low")
    team.create(asking("important", "high"))
    placed(team, "important")
    assert evicted(team, 1) == {"low"}
    delete_quota(team, "quota")
