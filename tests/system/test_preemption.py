"""Preemption on a real API server, in loop mode: who goes, who stays, and who gets what becomes free."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM, SYSTEM_NAMESPACE
from cluster.resource import GPU_CLAIMS
from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, preemptions
from tests.system.support.gpuqueues import delete_queue, labels, set_queue
from tests.system.support.gpuquotas import set_quota
from tests.system.support.preemptions import CARDS, NODE, asking, bound, evicted, fill
from tests.system.support.scheduler_api import query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


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


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A second namespace like that."""
    made = make_namespace()
    yield made
    made.empty()


def stays_unplaced(namespace: Namespace, name: str, witness: Namespace) -> None:
    """Check that a pod waits and preempts none, although a pod that was created later is served in the meantime."""
    namespace.unplaced(name)
    witness.create({**asking("witness", "high"), "metadata": {"name": "witness"}})
    bound(witness, "witness")
    assert not evicted(namespace)
    assert not any("deletionTimestamp" in each["metadata"] for each in namespace.pods())
    assert "nodeName" not in namespace.pod(name)["spec"]


def event_notes(namespace: Namespace) -> dict[tuple[str, str], str]:
    """Return the notes of all events, by the name of the pod and the reason."""
    events = client(namespace.layout).list("events.events.k8s.io", namespace=namespace.name)
    return {(each["regarding"]["name"], each["reason"]): each["note"] for each in events}


# ---- which pods it may preempt ---------------------------------------------------------------------------------------


def test_the_victim_and_the_preemptor_say_what_happened(team: Namespace) -> None:
    """In kube-scheduler's words: condition DisruptionTarget, nominatedNodeName, and two events."""
    fill(team, stays=True)
    team.create(asking("important", "high"))
    (victim,) = preemptions.leaving(team)
    name = victim["metadata"]["name"]
    preemptor = wait.until(
        lambda: (found := team.pod("important"))["status"].get("nominatedNodeName") and found,
        what="the nomination",
        timeout_s=PATIENCE_S,
    )
    assert preemptor["status"]["nominatedNodeName"] == NODE

    def condition() -> dict[str, Any] | None:
        conditions = team.pod(name)["status"]["conditions"]
        return next((each for each in conditions if each.get("reason") == "PreemptionByScheduler"), None)

    found = wait.until(condition, what="the condition of the victim", timeout_s=PATIENCE_S)
    assert (found["type"], found["status"]) == ("DisruptionTarget", "True")
    assert found["message"] == "tranche: preempting to accommodate a higher priority pod"
    preemptions.let_go(team)
    bound(team, "important")
    written = {(name, "Preempted"), ("important", "Preempting")}
    notes = wait.until(
        lambda: (found := event_notes(team)).keys() >= written and found, what="both events", timeout_s=PATIENCE_S
    )
    uid = preemptor["metadata"]["uid"]
    assert notes[name, "Preempted"] == f"Preempted by pod {uid} on node {NODE}"
    assert notes["important", "Preempting"] == f"Evicted 1 of 1 pods of lower priority on node {NODE}"
    assert evicted(team, 1) == {name}


def test_a_victims_card_and_a_free_one(team: Namespace) -> None:
    """Two cards are needed and one is free: one pod goes."""
    fill(team, CARDS - 1)
    team.create(asking("pair", "high", count=2))
    bound(team, "pair")
    assert len(evicted(team, 1)) == 1


def test_pods_of_equal_priority_and_those_that_never_preempt_wait(team: Namespace, others: Namespace) -> None:
    """The witness shows that the scheduler has looked at them."""
    fill(others, 1)
    team.create(*(asking(f"middle-{number}", "middle") for number in range(CARDS - 1)))
    team.placed(CARDS - 1)
    team.create(asking("equal"), asking("patient", "patient"))
    stays_unplaced(team, "equal", others)
    assert "nodeName" not in team.pod("patient")["spec"]
    assert evicted(others, 1) == {"low-0"}


def test_a_gang_goes_as_a_whole(team: Namespace) -> None:
    """For the card of one of its two members, before pods of a higher priority."""
    head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind, "metadata": {"name": "ring"}}
    team.create({**head, "spec": {"devices": {"count": 1}, "gangRef": "training"}})
    members = [f"member-{number}" for number in range(2)]
    team.create(*(asking(name, annotations={CLAIM: "ring"}) for name in members))
    team.create(*(asking(f"middle-{number}", "middle") for number in range(CARDS - len(members))))
    team.placed(CARDS)
    team.create(asking("important", "high"))
    bound(team, "important")
    assert evicted(team, 2) == {*members}


def test_a_protected_pod_stays(team: Namespace) -> None:
    """All others of its age and priority may go."""
    protected = {"gpu.scheduling/preemption-protection": "1h"}
    low = fill(team, CARDS - 1)
    team.create(asking("protected", annotations=protected))
    bound(team, "protected")
    team.create(*(asking(f"important-{number}", "high") for number in range(CARDS)))
    wait.until(lambda: evicted(team) == {*low}, what="the end of all others", timeout_s=PATIENCE_S)
    for number in range(CARDS - 1):
        bound(team, f"important-{number}")
    assert team.pod("protected")["spec"]["nodeName"] == NODE


def test_a_disruption_budget_is_never_violated(team: Namespace, others: Namespace) -> None:
    """The pod of the budget stays, and one goes that is more important."""
    guarded = [asking(f"guarded-{number}", labels={"app": "db"}) for number in range(CARDS - 1)]
    team.create(*guarded)
    team.placed(CARDS - 1)
    others.create(asking("middle", "middle"))
    bound(others, "middle")
    spec = {"minAvailable": CARDS - 1, "selector": {"matchLabels": {"app": "db"}}}
    team.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": spec})
    budget = ("get", "poddisruptionbudget", "db", "-o", "jsonpath={.status.expectedPods}")
    wait.until(lambda: team.kubectl(*budget) == str(CARDS - 1), what="the budget's status", timeout_s=PATIENCE_S)
    team.create(asking("important", "high"))
    bound(team, "important")
    assert evicted(others, 1) == {"middle"}
    assert not evicted(team)
    team.delete("poddisruptionbudget", "db")


@pytest.mark.parametrize(("reach", "goes"), [("Cluster", "others"), ("Namespace", "team"), ("Never", "")])
def test_the_reach_of_a_queue(team: Namespace, others: Namespace, reach: str, goes: str) -> None:
    """The pod of the other namespace is younger and less important."""
    set_queue(team.layout, "reaching", preemption={"reach": reach})
    team.create(*(asking(f"middle-{number}", "middle") for number in range(CARDS - 1)))
    team.placed(CARDS - 1)
    others.create(asking("low"))
    bound(others, "low")
    team.create(asking("important", "high", labels=labels("reaching")))
    if goes:
        bound(team, "important")
        assert len(evicted({"team": team, "others": others}[goes], 1)) == 1
        assert len(evicted(team)) + len(evicted(others)) == 1
    else:
        stays_unplaced(team, "important", others)
    delete_queue(team.layout, "reaching")


# ---- quotas ----------------------------------------------------------------------------------------------------------


def test_a_low_pod_of_the_same_quota_goes(team: Namespace) -> None:
    """Most cards are free; the quota has no more."""
    set_quota(team, "quota", total={"limits": {"nvidia.com/gpu": 2}})
    fill(team, 2)
    team.create(asking("important", "high"))
    bound(team, "important")
    assert len(evicted(team, 1)) == 1


def test_a_pod_of_another_namespace_gives_a_quota_no_relief(team: Namespace, others: Namespace) -> None:
    """It is less important than the pods of the quota, which are as important as the one that waits."""
    set_quota(team, "quota", total={"limits": {"nvidia.com/gpu": 1}})
    fill(others, 1)
    team.create(asking("first", "high"))
    bound(team, "first")
    team.create(asking("second", "high"))
    stays_unplaced(team, "second", others)
    assert not evicted(others)


def test_a_breach_of_a_single_limit_preempts_nobody(team: Namespace, others: Namespace) -> None:
    """The quota is younger than the pod, so admission did not refuse it; it is scheduled when its gate is removed."""
    fill(others)
    team.create(asking("large", "high", count=2, schedulingGates=[{"name": "tests.tranche.local/gate"}]))
    set_quota(team, "quota", single={"maxCards": 1})
    team.kubectl("patch", "pod", "large", "--type=merge", "-p", '{"spec":{"schedulingGates":null}}')
    assert "QuotaSingleExceeded" in team.unplaced("large")
    stays_unplaced(team, "large", others)


def test_max_pods_full_and_a_victim(team: Namespace) -> None:
    """As many pods as the quota allows: one goes, and the important one comes."""
    set_quota(team, "quota", total={"maxPods": 2})
    fill(team, 2)
    team.create(asking("important", "high"))
    bound(team, "important")
    assert len(evicted(team, 1)) == 1
    assert len([each for each in team.pods() if each["spec"].get("nodeName")]) == 2


# ---- nominations -----------------------------------------------------------------------------------------------------


def test_what_becomes_free_is_for_the_preemptor(team: Namespace, others: Namespace) -> None:
    """Two victims leave one after the other; the first card is not taken by pods that would fit at once."""
    fill(team, stays=True)
    team.create(asking("pair", "high", count=2))
    first, second = preemptions.leaving(team, 2)
    others.create(asking("low"), asking("middle", "patient", labels={"who": "equal"}))
    for name in ("low", "middle"):
        others.unplaced(name)
    preemptions.end(team, first["metadata"]["name"])
    team.create(asking("witness"))
    team.unplaced("witness")
    assert not [each for each in others.pods() if each["spec"].get("nodeName")]
    preemptions.end(team, second["metadata"]["name"])
    bound(team, "pair")
    assert not [each for each in others.pods() if each["spec"].get("nodeName")]


def test_a_more_important_pod_may_take_what_is_held(team: Namespace, others: Namespace) -> None:
    """The one that preempted first waits, and then preempts another pod."""
    fill(team, stays=True)
    team.create(asking("middle", "middle"))
    preemptions.leaving(team)
    others.create(asking("important", "patient"))
    others.unplaced("important")
    preemptions.let_go(team)
    bound(others, "important")
    preemptions.leaving(team)
    preemptions.let_go(team)
    bound(team, "middle")


# ---- what tenants write ----------------------------------------------------------------------------------------------


def disruption_budget(name: str, expressions: int) -> dict[str, Any]:
    """Return a budget that permits everything, with a number of expressions that all pods of these tests meet."""
    selector = {"matchExpressions": [{"key": f"k{at}", "operator": "DoesNotExist"} for at in range(expressions)]}
    spec = {"maxUnavailable": "100%", "selector": selector}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def test_hostile_budgets_stop_nobody(tranche: Layout, team: Namespace, others: Namespace) -> None:
    """Selectors of 20,000 expressions, on pods for whose cards another waits: the same leader places all others.

    So it does while an important pod is simulated, for which nothing but a request is needed. The pods count as guarded
    until the budgets are gone.
    """

    def epoch() -> int:
        found: int = client(tranche).get("leadership", "tranche-scheduler", namespace=SYSTEM_NAMESPACE)["spec"]["epoch"]
        return found

    fill(team)
    before = epoch()
    team.create(*(disruption_budget(f"large-{number}", 20_000) for number in range(8)))
    team.create(*(disruption_budget(f"small-{number}", 60) for number in range(100)))
    others.create(asking("important", "high"))
    others.unplaced("important")
    would_be = asking("would-be")
    would_be["metadata"]["namespace"] = others.name
    would_be["spec"]["priority"] = 1_000
    for number in range(3):
        simulated = query(tranche, "/api/simulate-schedule", would_be)["explanation"]
        assert not simulated["node"]
        others.create(pod(f"quick-{number}", node="gpu-sim-0", gpu=1, gpumem=100))
        bound(others, f"quick-{number}")
    assert not evicted(team)
    assert "nodeName" not in others.pod("important")["spec"]
    team.api.delete_all("poddisruptionbudgets", namespace=team.name)
    bound(others, "important")
    assert len(evicted(team, 1)) == 1
    assert epoch() == before


# ---- budgets that never permit a disruption --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def violating(tranche: Layout, node: None) -> Iterator[None]:
    """A scheduler that violates rigid budgets."""
    with preemptions.violating_rigid_budgets(tranche):
        yield


@pytest.mark.usefixtures("violating")
def test_rigid_budget_is_violated_where_the_setting_says_so(team: Namespace, others: Namespace) -> None:
    """After all other pods have gone, whatever their priority."""
    guarded = [f"guarded-{number}" for number in range(CARDS - 1)]
    team.create(*(asking(name, labels={"app": "db"}) for name in guarded))
    team.placed(CARDS - 1)
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}}
    team.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": spec})
    others.create(asking("middle", "middle"))
    bound(others, "middle")
    team.create(asking("first", "high"))
    bound(team, "first")
    assert evicted(others, 1) == {"middle"}
    assert not evicted(team)
    team.create(asking("second", "high"))
    bound(team, "second")
    assert evicted(team, 1) <= {*guarded}
    team.delete("poddisruptionbudget", "db")


@pytest.mark.usefixtures("violating")
def test_the_scheduler_deletes_only_pods_with_cards_in_their_own_time(team: Namespace) -> None:
    """A thief of its token ends no other pod, no later pod of the name, and gives none less time than it asks for."""
    team.create(pod("waits", node="nowhere", gpu=1), asking("runs", terminationGracePeriodSeconds=2))
    bound(team, "runs")
    layout = team.layout
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")

    def delete(namespace: str, name: str, **options: Any) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}?dryRun=All"
        body = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **options})
        kubectl.run(layout, "delete", "--raw", path, "-f", "-", stdin=body, kubeconfig=identity)

    uids = {name: {"uid": team.pod(name)["metadata"]["uid"]} for name in ("waits", "runs")}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("waits", {"preconditions": uids["waits"]}),
        ("runs", {}),
        ("runs", {"preconditions": uids["runs"], "gracePeriodSeconds": 1}),
    ]
    for name, options in refused:
        with pytest.raises(LabError, match="only pods that have cards, by their UID and with their own grace period"):
            delete(team.name, name, **options)
    delete(team.name, "runs", preconditions=uids["runs"])
