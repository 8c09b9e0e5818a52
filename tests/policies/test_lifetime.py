"""A pod holds its cards until its node says that it has ended: no other user makes them free before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.client import Client, client
from tests.policies.support.pods import NODE, plain, prepared
from tests.support import identities
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from lab.layout import Layout
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver


@pytest.fixture
def holder(leader: Leader, node: str, namespace: str) -> dict[str, Any]:
    """A running pod that holds a card, in an opted-in namespace."""
    return leader.place(namespace, waiting("holder"))


def waiting(name: str) -> dict[str, Any]:
    """Return a GPU pod that has a grace period of a minute."""
    sent = prepared()
    sent["metadata"]["name"] = name
    sent["spec"]["terminationGracePeriodSeconds"] = 60
    return sent


def deletion_refusal(api: Client, namespace: str, name: str, *, grace_s: int = 0) -> str:
    """Delete a pod, at once unless there is a grace period; return why it is refused, empty if it is not."""
    return refusal(lambda: api.delete("pod", name, namespace=namespace, grace_s=grace_s, wait=False))


def eviction_refusal(api: Client, namespace: str, name: str, *, grace_s: int = 0) -> str:
    """Evict a pod, at once unless there is a grace period; return why it is refused, empty if it is not."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": grace_s},
    }
    path = api.path("pods", name, namespace=namespace, subresource="eviction")
    return refusal(lambda: api.request("POST", path, body=body))


def is_being_deleted(server: Layout, namespace: str, name: str) -> bool:
    """Return whether a pod is being deleted, or gone by now."""
    found = client(server).find("pod", name, namespace=namespace)
    return found is None or "deletionTimestamp" in found["metadata"]


# ---- deletion --------------------------------------------------------------------------------------------------------


def test_immediate_deletion_is_rejected(server: Layout, namespace: str, holder: dict[str, Any]) -> None:
    """This holds for tenant, administrator and other nodes, for one pod and for all; the error names the remedy."""
    tenant, administrator = identities.tenant(server, namespace), client(server)
    why = deletion_refusal(tenant, namespace, "holder")
    assert f"pod holder holds GPUs of node {NODE}" in why
    assert '"--grace-period=1"' in why
    assert "node.kubernetes.io/out-of-service" in why
    assert "holds GPUs" in deletion_refusal(administrator, namespace, "holder")
    assert "holds GPUs" in refusal(lambda: administrator.delete_all("pods", namespace=namespace, grace_s=0, wait=False))
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    path = administrator.path("pods", namespace=namespace)
    assert "holds GPUs" in refusal(lambda: administrator.request("DELETE", path, body=options))
    assert "other-node" in deletion_refusal(identities.kubelet(server, "other-node"), namespace, "holder")
    assert not is_being_deleted(server, namespace, "holder")
    assert deletion_refusal(tenant, namespace, "holder", grace_s=1) == ""
    assert is_being_deleted(server, namespace, "holder")


def test_pods_without_cards_can_be_deleted_immediately(
    server: Layout, leader: Leader, namespace: str, holder: dict[str, Any]
) -> None:
    """Ordinary pods, pending pods, and pods whose containers have ended hold no share."""
    ended = {"status": {"phase": "Succeeded"}}
    identities.kubelet(server, NODE).patch("pods", "holder", ended, namespace=namespace, subresource="status")
    ordinary = plain("ordinary")
    ordinary["spec"] |= {"terminationGracePeriodSeconds": 60, "nodeName": NODE}
    client(server).create(ordinary, waiting("waiting"), namespace=namespace)
    for name in ("holder", "ordinary", "waiting"):
        assert deletion_refusal(client(server), namespace, name) == ""
        assert client(server).find("pod", name, namespace=namespace) is None


# ---- eviction --------------------------------------------------------------------------------------------------------


def test_immediate_eviction_is_rejected(server: Layout, namespace: str, holder: dict[str, Any]) -> None:
    """In an opted-in namespace this holds for a tenant and an administrator; with a grace period of 1 s it succeeds."""
    tenant = identities.tenant(server, namespace)
    for api in (tenant, client(server)):
        why = eviction_refusal(api, namespace, "holder")
        assert "pod holder may hold GPUs" in why
        assert "gracePeriodSeconds 1" in why
    assert not is_being_deleted(server, namespace, "holder")
    assert eviction_refusal(tenant, namespace, "holder", grace_s=1) == ""
    assert is_being_deleted(server, namespace, "holder")


def test_elsewhere_only_users_who_may_cordon_evict_immediately(
    server: Layout, leader: Leader, node: str, plain_namespace: str
) -> None:
    """A pod may have opted in by its own label, so a tenant may not; users who may cordon nodes can drain them."""
    tenant, sent = identities.tenant(server, plain_namespace), waiting("holder")
    sent["metadata"]["labels"] = {"gpu.scheduling/injection": "enabled"}
    leader.place(plain_namespace, sent)
    client(server).create(plain("ordinary"), namespace=plain_namespace)
    assert "may hold GPUs" in eviction_refusal(tenant, plain_namespace, "holder")
    assert eviction_refusal(client(server), plain_namespace, "ordinary") == ""
    assert is_being_deleted(server, plain_namespace, "ordinary")


# ---- phase -----------------------------------------------------------------------------------------------------------


def status_refusal(api: Client, namespace: str, name: str, status: dict[str, Any]) -> str:
    """Write a part of a pod's status; return why it is refused, empty if it is not."""
    patch, where = {"status": status}, {"namespace": namespace, "subresource": "status"}
    return refusal(lambda: api.patch("pods", name, patch, by="strategic", **where))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_only_its_node_writes_that_a_pod_ended(
    server: Layout, namespace: str, holder: dict[str, Any], phase: str
) -> None:
    """An administrator and another node are rejected; the phase that its own node writes is accepted, and is final."""
    administrator, ended = client(server), {"phase": phase}
    why = status_refusal(administrator, namespace, "holder", ended)
    assert f"only its node {NODE} may change it from Running to {phase}, not " in why
    why = status_refusal(identities.kubelet(server, "other-node"), namespace, "holder", ended)
    assert "can only update pod status for pods" in why
    assert status_refusal(identities.kubelet(server, NODE), namespace, "holder", ended) == ""
    why = status_refusal(administrator, namespace, "holder", {"phase": "Running"})
    assert f"may change it from {phase} to Running" in why


def test_other_status_fields_can_be_written(server: Layout, namespace: str, holder: dict[str, Any]) -> None:
    """Schedulers and controllers can write conditions, and the phase of pods without cards."""
    administrator = client(server)
    condition = {"type": "example.com/checked", "status": "True"}
    assert status_refusal(administrator, namespace, "holder", {"conditions": [condition]}) == ""
    administrator.create(plain("ordinary"), namespace=namespace)
    assert status_refusal(administrator, namespace, "ordinary", {"phase": "Succeeded"}) == ""
