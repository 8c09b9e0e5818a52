"""What a thief of one of our tokens cannot do: each is of use for what its process writes, and on its own node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.publishing import publisher
from allocation.names import SYSTEM_NAMESPACE
from lab import kubeconfig
from lab.client import Client, client
from tests.support import identities
from tests.support.access import may
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ACCOUNT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-"
OWN, OTHER = "accounts-own", "accounts-other"
LONG = ".".join(["n" * 62] * 4)
REGISTER = "hami.io/node-nvidia-register"
WRITES = ("status", "spec", "register", "lease")


def report(node: str, **fields: Any) -> dict[str, Any]:
    """Return the GpuNodeStatus of a node."""
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": node}, **fields}


@pytest.fixture(scope="module")
def nodes(server: Layout) -> Iterator[None]:
    """Three Nodes, of which two have a report; the name of the third is too long for the prefix of heartbeats."""
    client(server).apply(
        *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in (OWN, OTHER, LONG)),
        *(report(name, spec={"nodeName": name}) for name in (OWN, OTHER)),
    )
    yield
    for name in (OWN, OTHER):
        client(server).delete("gpunodestatus", name)
    for name in (OWN, OTHER, LONG):
        client(server).delete("node", name)


@pytest.fixture(scope="module")
def agent(server: Layout, nodes: None) -> Client:
    """The API by the token of an agent that is bound to its node."""
    return identities.process(server, "agent", node=OWN)


def write_refusal(api: Client, what: str, node: str) -> str:
    """Try to write false data about a node, as a dry run; return why it is refused, empty if it is not.

    Like the agent, this applies objects, which needs no right to read them.
    """
    if what == "register":
        patch = {"metadata": {"annotations": {REGISTER: "[]"}}}
        return refusal(lambda: api.patch("node", node, patch, dry_run=True))
    if what == "lease":
        return lease_refusal(api, publisher.heartbeat(node, identity="liar", seconds=3600, unix=0.0))
    fields = {"status": {"devices": [], "total": 0}} if what == "status" else {"spec": {"nodeName": node}}
    subresource = "status" if what == "status" else ""
    return refusal(lambda: api.apply(report(node, **fields), subresource=subresource, dry_run=True))


def lease_refusal(api: Client, body: dict[str, Any]) -> str:
    """Apply a Lease as a dry run; return why it is refused, empty if it is not."""
    return refusal(lambda: api.apply(body, namespace=SYSTEM_NAMESPACE, dry_run=True))


# ---- agents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", WRITES)
def test_agent_writes_for_its_own_node_only(agent: Client, what: str) -> None:
    """Its token is bound to its node; writes about another node are rejected, whatever its role allows."""
    assert f"the token of this agent is bound to node {OWN}" in write_refusal(agent, what, OTHER)
    assert write_refusal(agent, what, OWN) == ""


@pytest.mark.parametrize("what", WRITES)
def test_agent_token_without_a_node_writes_nothing(server: Layout, nodes: None, what: str) -> None:
    """Such a token was created by hand or taken from a Secret."""
    assert "is bound to no node" in write_refusal(identities.process(server, "agent"), what, OWN)


def test_agent_cannot_write_the_leader_lease(agent: Client) -> None:
    """Its role allows it to write Leases of the namespace, but not the scheduler's."""
    lease = publisher.heartbeat(OWN, identity="liar", seconds=3600, unix=0.0)
    lease["metadata"]["name"] = "tranche-scheduler"
    lease["spec"]["leaseTransitions"] = 2147483647
    assert "it may not write leases tranche-scheduler" in lease_refusal(agent, lease)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"kubernetes.io/hostname": OTHER}}},
        {"metadata": {"annotations": {"mine": "1"}}},
        {"metadata": {"annotations": {"theirs": None}}},
        {"metadata": {"finalizers": ["mine/never"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}},
    ],
)
def test_agent_writes_only_one_annotation_of_its_node(server: Layout, agent: Client, patch: dict[str, Any]) -> None:
    """RBAC has no field rules, so the right to patch a Node would allow the agent to attract or evict every pod."""
    client(server).patch("node", OWN, {"metadata": {"annotations": {"theirs": "1"}}})
    why = refusal(lambda: agent.patch("node", OWN, patch))
    assert f"nothing of its node {OWN} but the annotation {REGISTER}" in why


def test_node_with_a_long_name_has_its_own_heartbeat(server: Layout, nodes: None, tmp_path: Path) -> None:
    """Its Lease name ends in a hash, because the node name is too long for the prefix; the agent may still write it."""
    token = kubeconfig.service_account_token(server, namespace=SYSTEM_NAMESPACE, name="tranche-agent", node=LONG)
    api = client(server, kubeconfig=kubeconfig.token_kubeconfig(server, tmp_path / "agent", token=token, user="agent"))
    assert write_refusal(api, "lease", LONG) == ""
    assert f"it may not write leases agent-{OWN}" in write_refusal(api, "lease", OWN)


# ---- the webhook -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mine", "kubernetes.io/tls"), ("tranche-webhook-ca", "kubernetes.io/service-account-token")],
)
def test_webhook_token_cannot_create_other_tokens(server: Layout, name: str, kind: str) -> None:
    """RBAC cannot limit a create to a name, and a Secret of the right type would hold a token of the scheduler."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "tranche-scheduler"}},
        "type": kind,
        "data": {"tls.crt": "", "tls.key": ""} if kind.endswith("tls") else {},
    }
    api = identities.process(server, "webhook")
    why = refusal(lambda: api.create(secret, namespace=SYSTEM_NAMESPACE, dry_run=True))
    assert "the webhook may create no Secret but tranche-webhook-ca" in why


# ---- roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", ["agent", "webhook", "scheduler"])
@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("create", "serviceaccounts/token", ()),
        ("create", "pods", ()),
        ("impersonate", "users", ()),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", ()),
        ("patch", "validatingadmissionpolicies.admissionregistration.k8s.io", ()),
        ("create", "pods/binding", ("scheduler",)),
        ("patch", "pods", ()),
    ],
)
def test_no_identity_can_act_as_another(
    server: Layout, process: str, verb: str, resource: str, allowed: tuple[str, ...]
) -> None:
    """Only the scheduler may bind; none may impersonate, create tokens, or start pods in the system namespace."""
    api = client(server, user=f"{ACCOUNT}{process}")
    assert may(api, verb, resource, namespace=SYSTEM_NAMESPACE) == (process in allowed)


@pytest.mark.parametrize("kind", ["gpuqueues", "gpuquotas"])
@pytest.mark.parametrize("process", ["scheduler", "webhook", "agent"])
def test_no_process_of_ours_writes_a_queue_or_a_quota(server: Layout, process: str, kind: str) -> None:
    """Only the scheduler writes anything of one: its status."""
    api, group = client(server, user=f"{ACCOUNT}{process}"), "gpu.scheduling"
    verbs = ("create", "update", "patch", "delete", "deletecollection")
    assert not [verb for verb in verbs if may(api, verb, f"{kind}.{group}", namespace="default")]
    assert may(api, "patch", f"{kind}/status.{group}") == (process == "scheduler")
    assert may(api, "list", f"{kind}.{group}") == (process != "agent")
