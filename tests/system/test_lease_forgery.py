"""A Lease says which pod has a card: nobody but the leading scheduler makes one, and nobody changes one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.publishing import heartbeat
from lab import kubeconfig, kubectl, manifests, wait
from lab.client import client
from lab.errors import LabError
from scheduler.leases.device_lease import LeasedPod, planned
from tests.scheduler.support.leasing import allocation
from tests.system.test_fence import leadership

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
SYSTEM = "tranche-system"
NODE = "gpu-sim-1"
REFUSED = "(Forbidden)"
"""Where two policies refuse a request, the API server names either."""
LABELS = ("gpu.scheduling/managed", "gpu.scheduling/fenced")
PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"


def lease(layout: Layout, *, index: int = 40, token: str = "") -> dict[str, Any]:
    """Return the Lease of a card, as the leader would create it for a running pod that cannot be read."""
    epoch, identity = leadership(layout)
    (plan,) = planned(LeasedPod("none", "none", "none", allocation(index, node=NODE)), None)
    body = plan.body(token=token or f"{epoch}/{identity}", unix=0.0)
    body["metadata"]["annotations"].pop("gpu.scheduling/pod-ref")  # so that the scheduler keeps it
    body["metadata"]["annotations"]["gpu.scheduling/node"] = NODE
    return body


def scheduler(layout: Layout) -> Path:
    """Return the kubeconfig of the scheduler's own account."""
    return kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM, name="tranche-scheduler")


def agent(layout: Layout, node: str) -> Path:
    """Return the kubeconfig of the agent of a node."""
    return kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM, name="tranche-agent", node=node)


def attempt(layout: Layout, identity: Path, *arguments: str, body: object = None) -> str:
    """Run kubectl with an identity; return the error, empty if it succeeds."""
    try:
        kubectl.run(
            layout, "-n", SYSTEM, *arguments, stdin=json.dumps(body) if body is not None else None, kubeconfig=identity
        )
    except LabError as error:
        return error.why
    return ""


def create(layout: Layout, identity: Path, body: dict[str, Any], *, is_real: bool = False) -> str:
    """Create a Lease, as a dry run unless `is_real`; return the error, empty if it succeeds."""
    path = PATH if is_real else f"{PATH}?dryRun=All"
    return attempt(layout, identity, "create", "--raw", path, "-f", "-", body=body)


@pytest.fixture
def held(tranche: Layout) -> Iterator[str]:
    """The name of a card's Lease that exists."""
    body = lease(tranche, index=41)
    assert create(tranche, scheduler(tranche), body, is_real=True) == ""
    name: str = body["metadata"]["name"]
    yield name
    client(tranche).delete("lease", name, namespace=SYSTEM, missing_ok=True)


def test_the_leader_creates_leases_of_cards(tranche: Layout) -> None:
    """With its token and both labels."""
    assert create(tranche, scheduler(tranche), lease(tranche)) == ""


def test_a_former_leaders_lease_is_refused(tranche: Layout) -> None:
    """Its token is that of an earlier term, as in a Binding."""
    epoch, identity = leadership(tranche)
    why = create(tranche, scheduler(tranche), lease(tranche, token=f"{epoch - 1}/{identity}"))
    assert f"the scheduler with token {epoch - 1}/{identity} does not lead any more" in why


@pytest.mark.parametrize("label", LABELS)
def test_a_lease_of_a_card_without_its_labels_is_refused(tranche: Layout, label: str) -> None:
    """Without `fenced` the token would not be checked; without `managed` it would be nobody's."""
    body = lease(tranche)
    del body["metadata"]["labels"][label]
    assert "it is the Tranche scheduler's alone, with the labels" in create(tranche, scheduler(tranche), body)


def test_an_agent_creates_no_lease_of_a_card(tranche: Layout) -> None:
    """Also where its own heartbeat had this name before version 0.2: node a-0, card 0 of node a."""
    identity = agent(tranche, NODE)
    assert REFUSED in create(tranche, identity, lease(tranche))
    own = heartbeat.lease(NODE, identity="agent", seconds=60, unix=0.0)
    own["metadata"]["name"] = f"gpu-{NODE}"
    assert REFUSED in create(tranche, identity, own)
    assert "it is the Tranche scheduler's alone" in create(tranche, tranche.kubeconfig, own)


def test_nobody_else_creates_a_lease_of_a_card(tranche: Layout) -> None:
    """Not even an administrator who knows the token."""
    assert REFUSED in create(tranche, tranche.kubeconfig, lease(tranche))


@pytest.mark.parametrize("who", ["administrator", "scheduler", "agent"])
@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"holderIdentity": "mine"}},
        {"metadata": {"labels": {"gpu.scheduling/managed": None}}},
        {"metadata": {"annotations": {"gpu.scheduling/card": "another"}}},
    ],
)
def test_nobody_changes_a_lease_of_a_card(tranche: Layout, held: str, who: str, patch: dict[str, Any]) -> None:
    """A takeover is a deletion and a creation; the agent is that of the node whose old heartbeat had the same name."""
    if who == "administrator":
        why = attempt(tranche, tranche.kubeconfig, "patch", "lease", held, "--type=merge", "-p", json.dumps(patch))
        assert "nobody may change it" in why
    elif who == "scheduler":
        why = attempt(tranche, scheduler(tranche), "patch", "lease", held, "--type=merge", "-p", json.dumps(patch))
        assert 'cannot patch resource "leases"' in why
    else:
        node = held.removeprefix("gpu-")
        client(tranche).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        try:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **patch}
            body["metadata"] = {**patch.get("metadata", {}), "name": held}
            apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
            assert REFUSED in attempt(tranche, agent(tranche, node), *apply, body=body)
        finally:
            client(tranche).delete("node", node)


def test_an_agent_before_version_02_renews_its_lease(tranche: Layout, held: str) -> None:
    """During an upgrade; the Lease exists, and has none of our labels. No agent makes it a card's."""
    node = "old-agent"
    client(tranche).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    file = str(manifests.ROOT / "base" / "device-leases.yaml")
    body = heartbeat.lease(node, identity="agent", seconds=60, unix=0.0)
    body["metadata"]["name"] = f"gpu-{node}"
    kubectl.run(tranche, "delete", "-f", file)
    try:
        wait.until(
            lambda: create(tranche, tranche.kubeconfig, body, is_real=True) == "", what="the old Lease", timeout_s=60
        )
    finally:
        kubectl.run(tranche, "apply", "-f", file)
        # The API server enforces a new policy a moment after it was created.
        why = "the scheduler may not write Lease"
        named = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "anything"}}
        wait.until(
            lambda: why in create(tranche, scheduler(tranche), named), what="the policy in force again", timeout_s=60
        )
    try:
        identity, apply = agent(tranche, node), ("apply", "--server-side", "--force-conflicts", "-f", "-")
        body["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
        assert attempt(tranche, identity, *apply, body=body) == ""
        body["metadata"]["labels"] = {"gpu.scheduling/managed": "true"}
        assert REFUSED in attempt(tranche, identity, *apply, body=body)
    finally:
        client(tranche).delete("lease", f"gpu-{node}", namespace=SYSTEM)
        client(tranche).delete("node", node)


def test_a_deletion_by_the_scheduler_names_what_it_deletes(tranche: Layout, held: str) -> None:
    """By UID and resourceVersion: a former leader's late deletion misses."""
    identity, path = scheduler(tranche), f"{PATH}/{held}"
    why = "the scheduler may delete a Lease by its UID and resourceVersion only"
    meta = client(tranche).get("lease", held, namespace=SYSTEM)["metadata"]
    for preconditions in ({}, {"uid": meta["uid"]}, {"resourceVersion": meta["resourceVersion"]}):
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        assert why in attempt(tranche, identity, "delete", "--raw", path, "-f", "-", body=body)
    complete = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": complete}
    assert attempt(tranche, identity, "delete", "--raw", path, "-f", "-", body=body) == ""


@pytest.mark.parametrize("name", [f"agent-{NODE}", "anything", "tranche-scheduler"])
def test_the_scheduler_breaks_no_other_lease(tranche: Layout, name: str) -> None:
    """Its role has `create` and `delete` for the Leases of cards, which a role cannot limit to their names."""
    identity = scheduler(tranche)
    if name == "anything":
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        assert f"the scheduler may not write Lease {name}" in create(tranche, identity, body)
    else:
        why = attempt(tranche, identity, "delete", "--raw", f"{PATH}/{name}?dryRun=All")
        assert f"the scheduler may not write Lease {name}" in why


def test_the_namespace_can_be_emptied(tranche: Layout, held: str) -> None:
    """Such requests name no object: the policies read the names from the objects."""
    selector = "labelSelector=gpu.scheduling%2Fmanaged%3Dtrue"
    assert attempt(tranche, tranche.kubeconfig, "delete", "--raw", f"{PATH}?{selector}") == ""
    assert not kubectl.run(tranche, "-n", SYSTEM, "get", "lease", held, "--ignore-not-found")
