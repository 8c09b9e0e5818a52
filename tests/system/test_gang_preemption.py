"""A gang preempts as one on a real API server: pods of lower priority on several nodes go for all of it, or none."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from lab import wait
from tests.support.foreign_policies import refusing
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, preemptions, scheduler_api
from tests.system.support.gpubindings import NODE_A, NODE_B
from tests.system.support.preemptions import CARDS, evicted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
LOW = {"low-0": (NODE_A, CARDS // 2), "low-1": (NODE_A, CARDS // 2), "low-2": (NODE_B, CARDS)}
"""The nodes and the number of cards of the pods of low priority."""


@pytest.fixture(scope="module", autouse=True)
def nodes(tranche: Layout) -> Iterator[None]:
    """Two nodes of eight cards for these tests alone, and PriorityClasses."""
    with gpubindings.nodes(tranche), preemptions.priorities(tranche):
        yield


@pytest.fixture
def team(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace whose pods of low priority have all cards of the two nodes."""
    made = make_namespace()
    made.create(*(pod(name, node=node, gpu=cards, labels={"app": name}) for name, (node, cards) in LOW.items()))
    made.placed(len(LOW))
    yield made
    made.empty()


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of the gang."""
    made = make_namespace()
    yield made
    made.empty()


def gang() -> list[dict[str, Any]]:
    """Return three pods of a gang that need all cards of the two nodes."""
    made = []
    for name, (node, cards) in LOW.items():
        member = pod(name.replace("low", "m"), node=node, gpu=cards, labels={"gpu.scheduling/gang": "train"})
        member["metadata"]["annotations"] = {"gpu.scheduling/gang-min-members": str(len(LOW))}
        member["spec"]["priorityClassName"] = "preemption-high"
        made.append(member)
    return made


def runs_on(namespace: Namespace) -> dict[str, str]:
    """Return the nodes of the pods that have one."""
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in namespace.placed(len(LOW))}


def preemption(others: Namespace) -> dict[str, Any]:
    """Return what the scheduler explains about preemption for a pod of the gang, as soon as it knows the pod."""

    def explained() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = scheduler_api.query(others.layout, f"/api/explain/{others.name}/m-2")["preemption"]
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None
        return found

    return wait.until(explained, what=f"pod {others.name}/m-2 in the scheduler", timeout_s=PATIENCE_S)


def all_stay(team: Namespace) -> None:
    """Check that no pod of low priority is evicted, or is being deleted."""
    assert not evicted(team)
    assert not any("deletionTimestamp" in each["metadata"] for each in team.pods())


def test_a_gang_preempts_pods_of_several_nodes(team: Namespace, others: Namespace) -> None:
    """All three victims go, and all three pods of the gang get nodes."""
    others.create(*gang())
    assert runs_on(others) == {"m-0": NODE_A, "m-1": NODE_A, "m-2": NODE_B}
    assert evicted(team, 3) == {*LOW}


def test_a_budget_of_one_victim_keeps_all_of_them(team: Namespace, others: Namespace) -> None:
    """Explain says why; without the budget all of them go."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "low-2"}}}
    team.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": spec})
    budget = ("get", "poddisruptionbudget", "db", "-o", "jsonpath={.status.expectedPods}")
    wait.until(lambda: team.kubectl(*budget) == "1", what="the budget's status", timeout_s=PATIENCE_S)
    others.create(*gang())
    # Before the attempt it is said already that no node would fit, because each pod alone has no candidates.
    member = f"pod {others.name}/m-2 of its gang"
    wait.until(lambda: member in preemption(others)["why"], what="the attempt", timeout_s=PATIENCE_S)
    assert "would not make any node fit" in preemption(others)["why"]
    all_stay(team)
    team.delete("poddisruptionbudget", "db")
    assert len(runs_on(others)) == len(LOW)
    assert evicted(team, 3) == {*LOW}


def attempts(layout: Layout) -> float:
    """Return how many preemptions ended because an Eviction was refused."""
    samples = scheduler_api.metrics(scheduler_api.url(layout))["tranche_scheduler_preemptions_total"]
    return sum(each.value for each in samples if each.labels["outcome"] == "refused")


def test_an_eviction_that_is_refused_costs_no_other_pod(team: Namespace, others: Namespace) -> None:
    """The dry run of the last one meets a policy; what was held and nominated for the gang is released."""
    before = attempts(team.layout)
    with refusing(team.layout, "eviction", namespace=team.name, name="low-2"):
        others.create(*gang())
        wait.until(lambda: attempts(team.layout) > before, what="the refusal", timeout_s=PATIENCE_S)
        all_stay(team)
        wait.until(lambda: not nominated(others), what="the end of the nominations", timeout_s=PATIENCE_S)
        assert preemption(others)["held"] == ""
    assert len(runs_on(others)) == len(LOW)
    assert evicted(team, 3) == {*LOW}


def nominated(others: Namespace) -> set[str]:
    """Return the nodes that are nominated for pods of the gang."""
    return {each["status"].get("nominatedNodeName", "") for each in others.pods()} - {""}
