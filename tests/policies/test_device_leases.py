"""A Lease says which pod has a card: only the leading scheduler makes one, and no user changes one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from agent.publishing import publisher
from allocation.names import SYSTEM_NAMESPACE
from lab import kubectl, manifests, wait
from lab.client import Client, client
from tests.policies.support.leader import FORMER, TOKEN, Leader
from tests.policies.support.leases import card_lease
from tests.policies.support.pods import NODE
from tests.support import identities
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
REFUSED = "403 Forbidden"
"""Where two policies refuse a request, the API server names either."""
LABELS = ("gpu.scheduling/managed", "gpu.scheduling/fenced")
ALONE = "it is the Tranche scheduler's alone"


class Identities(NamedTuple):
    """Those who try to write Leases."""

    administrator: Client
    scheduler: Client
    agent: Client


@pytest.fixture(scope="module")
def users(server: Layout, leader: Leader, node: str) -> Identities:
    """The administrator, the scheduler that leads, and the agent of a node."""
    return Identities(client(server), leader.api, identities.process(server, "agent", node=node))


def lease(index: int = 40, *, token: str = TOKEN) -> dict[str, Any]:
    """Return the Lease of a card of the agent's node."""
    return card_lease(index, node=NODE, token=token)


def creation_refusal(api: Client, body: dict[str, Any]) -> str:
    """Create a Lease as a dry run; return why it is refused, empty if it is not."""
    return refusal(lambda: api.create(body, namespace=SYSTEM_NAMESPACE, dry_run=True))


def without_label(label: str) -> dict[str, Any]:
    """Return the Lease of a card that lacks a label."""
    body = lease()
    del body["metadata"]["labels"][label]
    return body


def named(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Lease of some name."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def heartbeat_named(name: str) -> dict[str, Any]:
    """Return the heartbeat of the agent under another name."""
    body = publisher.heartbeat(NODE, identity="agent", seconds=60, unix=0.0)
    body["metadata"]["name"] = name
    return body


@pytest.fixture
def held(server: Layout, users: Identities) -> Iterator[str]:
    """The name of a card's Lease that exists."""
    (made,) = users.scheduler.create(lease(41), namespace=SYSTEM_NAMESPACE)
    name: str = made["metadata"]["name"]
    yield name
    client(server).delete("lease", name, namespace=SYSTEM_NAMESPACE, missing_ok=True)


def test_the_leader_creates_leases_of_cards(users: Identities) -> None:
    """With its token and both labels."""
    assert creation_refusal(users.scheduler, lease()) == ""


def test_a_former_leaders_lease_is_refused(users: Identities) -> None:
    """Its token is that of an earlier term, as in a Binding."""
    why = creation_refusal(users.scheduler, lease(token=FORMER))
    assert f"the scheduler with token {FORMER} does not lead any more" in why


@pytest.mark.parametrize("label", LABELS)
def test_a_lease_of_a_card_without_its_labels_is_refused(users: Identities, label: str) -> None:
    """Without `fenced` the token would not be checked; without `managed` it would have no keeper."""
    assert f"{ALONE}, with the labels" in creation_refusal(users.scheduler, without_label(label))


def test_an_agent_creates_no_lease_of_a_card(users: Identities) -> None:
    """Also where its own heartbeat had this name in early versions: node a-0, card 0 of node a."""
    own = heartbeat_named(f"gpu-{NODE}")
    assert REFUSED in creation_refusal(users.agent, lease())
    assert REFUSED in creation_refusal(users.agent, own)
    assert ALONE in creation_refusal(users.administrator, own)


def test_nobody_else_creates_a_lease_of_a_card(users: Identities) -> None:
    """Not even an administrator who knows the token."""
    assert REFUSED in creation_refusal(users.administrator, lease())


CHANGES: tuple[dict[str, Any], ...] = (
    {"spec": {"holderIdentity": "mine"}},
    {"metadata": {"labels": {"gpu.scheduling/managed": None}}},
    {"metadata": {"annotations": {"gpu.scheduling/card": "another"}}},
)


@pytest.mark.parametrize("patch", CHANGES)
@pytest.mark.parametrize(
    ("who", "why"), [("administrator", "no user may change it"), ("scheduler", 'cannot patch resource "leases"')]
)
def test_nobody_changes_a_lease_of_a_card(
    users: Identities, held: str, who: str, why: str, patch: dict[str, Any]
) -> None:
    """A takeover is a deletion and a creation."""
    api: Client = getattr(users, who)
    assert why in refusal(lambda: api.patch("lease", held, patch, namespace=SYSTEM_NAMESPACE))


@pytest.fixture
def namesake(server: Layout, held: str) -> Iterator[Client]:
    """The agent of the node whose old heartbeat had the name of a card's Lease."""
    node = held.removeprefix("gpu-")
    client(server).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    yield identities.process(server, "agent", node=node)
    client(server).delete("node", node)


def test_no_agent_changes_a_lease_of_a_card(namesake: Client, held: str) -> None:
    """Not even that of the node whose old heartbeat had the same name."""
    for patch in CHANGES:
        body = named(held, **patch.get("spec", {}))
        body["metadata"] |= patch.get("metadata", {})
        assert REFUSED in refusal(partial(namesake.apply, body, namespace=SYSTEM_NAMESPACE))


@pytest.fixture
def old_heartbeat(server: Layout, users: Identities) -> Iterator[dict[str, Any]]:
    """A Lease that exists, made by an agent of an early version: it has the name of a card's and none of our labels."""
    body, api = heartbeat_named(f"gpu-{NODE}"), client(server)
    file = str(manifests.ROOT / "base" / "device-leases.yaml")
    kubectl.run(server, "delete", "-f", file)
    try:
        wait.until(lambda: not creation_refusal(api, body), what="the end of the policy", timeout_s=60)
        api.create(body, namespace=SYSTEM_NAMESPACE)
    finally:
        kubectl.run(server, "apply", "-f", file)
        wait.until(  # the API server enforces a new policy a moment after it was created
            lambda: creation_refusal(users.scheduler, named("anything")), what="the policy in force", timeout_s=60
        )
    yield body
    api.delete("lease", body["metadata"]["name"], namespace=SYSTEM_NAMESPACE)


def test_an_agent_of_an_early_version_renews_its_lease(users: Identities, old_heartbeat: dict[str, Any]) -> None:
    """During an upgrade; no agent makes it a card's."""

    def renewal_refusal() -> str:
        return refusal(lambda: users.agent.apply(old_heartbeat, namespace=SYSTEM_NAMESPACE))

    old_heartbeat["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    assert renewal_refusal() == ""
    old_heartbeat["metadata"]["labels"] = {"gpu.scheduling/managed": "true"}
    assert REFUSED in renewal_refusal()


def test_a_deletion_by_the_scheduler_names_what_it_deletes(users: Identities, held: str) -> None:
    """By UID and resourceVersion: a former leader's late deletion misses."""
    path = users.scheduler.path("lease", held, namespace=SYSTEM_NAMESPACE)
    metadata = users.administrator.get("lease", held, namespace=SYSTEM_NAMESPACE)["metadata"]
    uid, version = ({key: metadata[key]} for key in ("uid", "resourceVersion"))

    def deletion_refusal(preconditions: dict[str, str]) -> str:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return refusal(lambda: users.scheduler.request("DELETE", path, body=body))

    for preconditions in ({}, uid, version):
        why = deletion_refusal(preconditions)
        assert "the scheduler may delete a Lease by its UID and resourceVersion only" in why
    assert deletion_refusal(uid | version) == ""


@pytest.fixture
def others(server: Layout) -> Iterator[None]:
    """A heartbeat and the Lease of the leader election, which processes of ours would have made."""
    names = (f"agent-{NODE}", "tranche-scheduler")
    client(server).apply(*map(named, names), namespace=SYSTEM_NAMESPACE)
    yield
    for name in names:
        client(server).delete("lease", name, namespace=SYSTEM_NAMESPACE, missing_ok=True)


@pytest.mark.parametrize(
    ("verb", "name"), [("create", "anything"), ("delete", f"agent-{NODE}"), ("delete", "tranche-scheduler")]
)
def test_the_scheduler_breaks_no_other_lease(users: Identities, others: None, verb: str, name: str) -> None:
    """Its role has `create` and `delete` for the Leases of cards, which a role cannot limit to their names."""
    if verb == "create":
        why = creation_refusal(users.scheduler, named(name))
    else:
        path = users.scheduler.path("lease", name, namespace=SYSTEM_NAMESPACE)
        why = refusal(lambda: users.scheduler.request("DELETE", path, dryRun="All"))
    assert f"the scheduler may not write Lease {name}" in why


def test_the_namespace_can_be_emptied(users: Identities, held: str) -> None:
    """Such requests name no object: the policies read the names from the objects."""
    users.administrator.delete_all("leases", namespace=SYSTEM_NAMESPACE, labels="gpu.scheduling/managed=true")
    assert users.administrator.find("lease", held, namespace=SYSTEM_NAMESPACE) is None
