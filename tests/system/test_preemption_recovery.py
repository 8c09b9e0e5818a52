"""Preemption when the scheduler crashes, and when victims are created again: no pod is evicted without need."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubectl, wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace
from tests.system.support import gpubindings, preemptions
from tests.system.support.preemptions import CARDS, asking, bound, evicted, fill
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

MOMENTS_S = (0.0, 0.2, 0.4, 0.6, 0.8)
"""After the creation of the pod that preempts; add some to look for rare moments."""


@pytest.fixture(scope="module", autouse=True)
def node(tranche: Layout) -> Iterator[None]:
    """A node of eight cards for these tests alone, and PriorityClasses."""
    with gpubindings.nodes(tranche), preemptions.priorities(tranche):
        yield


@pytest.fixture
def team(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace, from which all pods go before the next test begins."""
    made = make_namespace()
    yield made
    made.empty()


def left(namespace: Namespace) -> int:
    """Return how many pods of low priority have not ended; one that has may still be listed for a moment."""
    low = [each for each in namespace.pods() if each["metadata"]["name"].startswith("low")]
    return sum(each["status"]["phase"] not in ("Succeeded", "Failed") for each in low)


@pytest.mark.parametrize("moment", MOMENTS_S)
def test_a_crash_at_any_moment_costs_no_further_victim(team: Namespace, moment: float) -> None:
    """Before, between or after two evictions; the next leader evicts what is missing, and nothing else."""
    fill(team)
    team.create(asking("pair", "high", count=2))
    time.sleep(moment)  # the moment of the crash; nothing is waited for
    restart(team.layout, "scheduler", crash=True)
    bound(team, "pair")
    assert left(team) == CARDS - 2


def test_a_new_leader_holds_what_becomes_free(team: Namespace) -> None:
    """The victims of the crashed one are still ending; a pod that would fit on the first free card does not get it."""
    fill(team, stays=True)
    team.create(asking("pair", "high", count=2))
    first, _ = preemptions.leaving(team, 2)
    restart(team.layout, "scheduler", crash=True)
    team.create(asking("late"))
    team.unplaced("late")
    preemptions.end(team, first["metadata"]["name"])
    team.create(asking("later"))
    team.unplaced("later")
    assert "nodeName" not in team.pod("late")["spec"]
    preemptions.let_go(team)
    bound(team, "pair")
    assert left(team) == CARDS - 2


def test_a_victim_with_a_long_grace_period_keeps_the_nomination(team: Namespace) -> None:
    """Five minutes; no other pod is evicted meanwhile, and nothing ends the nomination."""
    fill(team, stays=True)
    team.create(asking("important", "high"))
    preemptions.leaving(team)
    team.create(asking("second", "middle"))
    preemptions.leaving(team, 2)
    for name in ("important", "second"):
        wait.until(
            lambda name=name: team.pod(name)["status"].get("nominatedNodeName"),  # type: ignore[misc]
            what=f"the nomination of {name}",
            timeout_s=PATIENCE_S,
        )
    preemptions.let_go(team)
    for name in ("important", "second"):
        bound(team, name)
    assert len(evicted(team, 2)) == 2


def deployment(replicas: int) -> dict[str, Any]:
    """Return a Deployment of pods that ask for a card each."""
    template = asking("low")
    labels = {"app": "low"}
    del template["apiVersion"], template["kind"]
    template["metadata"] = {"labels": labels}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "low"}, "spec": spec}


def test_victims_that_are_created_again_end_nothing(team: Namespace) -> None:
    """Their controller replaces them at once, and the replacements wait."""
    made = json.loads(json.dumps(deployment(CARDS)))
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    team.create(made)
    team.placed(CARDS)
    names = [f"important-{number}" for number in range(3)]
    team.create(*(asking(name, "high") for name in names))
    for name in names:
        bound(team, name)
    running = [each for each in team.pods("app=low") if each["spec"].get("nodeName")]
    assert len(running) == CARDS - len(names)
    assert len(evicted(team, len(names))) == len(names)
    kubectl.run(team.layout, "-n", team.name, "delete", "deployment", "low", "--cascade=foreground")
