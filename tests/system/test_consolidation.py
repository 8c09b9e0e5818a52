"""Consolidation on a real API server: a fragmented fleet, and a pod that waits for a whole node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubeconfig, wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, tenants
from tests.system.support.gpubindings import NODE_A, NODE_B
from tests.system.support.tenants import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

HALF = 4
"""Half of the cards of each of the two nodes."""


@pytest.fixture(scope="module", autouse=True)
def nodes(tranche: Layout) -> Iterator[None]:
    """Two nodes of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield


@pytest.fixture
def team(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace with a Deployment that has half of each node."""
    made = make_namespace()
    for node in (NODE_A, NODE_B):
        made.create(pod(f"fill-{node}", node=node, gpu=HALF))
    made.placed(2)
    web = anywhere("web", HALF)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": web["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    made.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": selector, "template": template},
        }
    )
    made.placed(2, labels="app=web")
    made.delete("pod", *(f"fill-{node}" for node in (NODE_A, NODE_B)))
    yield made
    made.empty()


@pytest.fixture
def administrator(team: Namespace) -> Iterator[Tenant]:
    """An account with all rights, and a token."""
    metadata = {"name": "administrator", "namespace": team.name}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"administrator-{team.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    client(team.layout).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, binding)
    identity = kubeconfig.service_account_kubeconfig(team.layout, namespace=team.name, name="administrator")
    yield Tenant(team.name, identity)
    client(team.layout).delete("clusterrolebinding", binding["metadata"]["name"])


def anywhere(name: str, cards: int) -> dict[str, Any]:
    """Return a pod that asks for cards of one of the two nodes."""
    made = pod(name, gpu=cards)
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_A, NODE_B]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    made["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return made


def web(team: Namespace) -> dict[str, str]:
    """Return the nodes of the pods of the Deployment that live, by the names of the pods."""
    live = (each for each in team.pods(labels="app=web") if "deletionTimestamp" not in each["metadata"])
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in live}


def test_pods_are_moved_and_the_waiting_pod_runs(team: Namespace, administrator: Tenant) -> None:
    """Explain names the command, a plan changes nothing, and --apply moves one pod of two."""
    before = web(team)
    assert sorted(before.values()) == [NODE_A, NODE_B]
    team.create(anywhere("large", 2 * HALF))
    team.unplaced("large")
    explained = tenants.gpu(administrator, "explain", "large")
    assert f"moved from there to other nodes; see 'kubectl gpu consolidate large -n {team.name}'" in explained.stdout

    planned = tenants.gpu(administrator, "consolidate", "-n", team.name, "-o", "json")
    assert planned.returncode == 0, planned.stderr
    (plan,) = json.loads(planned.stdout)["items"]
    (move,) = plan["consolidation"]["moves"]
    assert (plan["pod"], before[move["name"]]) == ("large", plan["consolidation"]["node"])
    assert web(team) == before

    applied = tenants.gpu(administrator, "consolidate", "large", "--apply")
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.splitlines()[-1] == f"pod {team.name}/large is placed on node {before[move['name']]}"
    team.ready("large")
    after = web(team)
    assert set(after.values()) == {move["to"]}
    assert len(before.keys() - after.keys()) == 1, "one pod was moved"

    def reasons() -> set[tuple[str, str]] | None:
        events = client(team.layout).list("events.events.k8s.io", namespace=team.name)
        found = {(each["regarding"]["name"], each["reason"]) for each in events}
        return found if (move["name"], "Moved") in found else None

    found = wait.until(reasons, what="the events", timeout_s=PATIENCE_S)
    assert ("large", "Consolidating") in found
    assert ("large", "ConsolidationEnded") not in found


def test_an_editor_of_the_namespace_cannot_have_pods_moved(team: Namespace) -> None:
    """Who may not evict pods of every namespace gets no plan of others, and no move."""
    editor = tenants.account(team, "editor", role="edit")
    before = web(team)
    team.create(anywhere("large", 2 * HALF))
    team.unplaced("large")
    refused = tenants.gpu(editor, "consolidate", "large", "--apply")
    assert refused.returncode != 0
    assert "may not" in refused.stderr or "cannot" in refused.stderr, refused.stderr
    assert web(team) == before
