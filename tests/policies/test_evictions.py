"""The scheduler's Evictions: the API server itself refuses those of a former leader, and those that are not justified.

Each is made with the scheduler's own identity, as a process that stopped between decision and request would make it, or
a thief of its token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import FENCED_LABEL, LEADER, SYSTEM_NAMESPACE
from lab import kubectl, wait
from lab.client import Client, client
from lab.errors import LabError
from tests.policies.support.leader import FORMER, TOKEN
from tests.policies.support.pods import NODE, prepared
from tests.support import identities
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from lab.layout import Layout
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE)
Eviction = dict[str, Any]


class Victim:
    """A running pod that holds a card, and what happens if it is evicted."""

    def __init__(self, server: Layout, leader: Leader, namespace: str) -> None:
        self.layout, self.leader, self.namespace = server, leader, namespace
        sent = prepared()
        sent["metadata"] |= {"name": "victim", "labels": {"app": "victim"}}
        self.uid: str = leader.place(namespace, sent)["metadata"]["uid"]

    def eviction(self, *, token: str = TOKEN, fenced: bool = True, **options: Any) -> Eviction:
        """Return an Eviction as the leader makes it, or with a token of another."""
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "name": "victim",
                "namespace": self.namespace,
                "labels": {FENCED_LABEL: "true"} if fenced else {},
                "annotations": {LEADER: token},
            },
            "deleteOptions": {"preconditions": {"uid": self.uid}, **options},
        }

    def refusal(self, body: Eviction, *, api: Client | None = None) -> str:
        """Post an Eviction, as the scheduler unless another user is named; return why it is refused."""
        api, metadata = api or self.leader.api, body["metadata"]
        path = api.path("pods", metadata["name"], namespace=metadata["namespace"], subresource="eviction")
        return refusal(lambda: api.request("POST", path, body=body))

    @property
    def is_evicted(self) -> bool:
        """Whether the pod is being deleted, or gone by now."""
        found = client(self.layout).find("pod", "victim", namespace=self.namespace)
        return found is None or "deletionTimestamp" in found["metadata"]


@pytest.fixture
def victim(server: Layout, leader: Leader, node: str, namespace: str) -> Victim:
    """A running pod."""
    return Victim(server, leader, namespace)


def test_the_leader_evicts(victim: Victim) -> None:
    """With the label, its token, and the UID."""
    assert victim.refusal(victim.eviction()) == ""
    assert victim.is_evicted


def test_a_former_leader_evicts_nobody(victim: Victim) -> None:
    """Its token is that of an earlier term, or it has none; the error names the leader."""
    why = victim.refusal(victim.eviction(token=FORMER))
    assert f"the scheduler with token {FORMER} does not lead any more" in why
    assert f"{TOKEN} does" in why
    without_token = victim.eviction()
    del without_token["metadata"]["annotations"]
    assert "the scheduler with token none does not lead any more" in victim.refusal(without_token)
    assert not victim.is_evicted


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
def test_the_scheduler_evicts_nobody_without_the_label(victim: Victim, version: str) -> None:
    """The fence selects Evictions by their label, so the scheduler's must have it, in every version of the API."""
    why = victim.refusal({**victim.eviction(fenced=False), "apiVersion": version})
    assert f'pod victim may be evicted by the Tranche scheduler only with the label {FENCED_LABEL}: "true"' in why
    assert not victim.is_evicted


def test_nobody_else_uses_the_label(server: Layout, victim: Victim) -> None:
    """Neither an administrator nor a user of the namespace who knows the token; without the label both evict."""
    user = identities.tenant(server, victim.namespace)
    for api in (client(server), user):
        why = victim.refusal(victim.eviction(), api=api)
        assert "an Eviction with the label gpu.scheduling/fenced is the Tranche scheduler's alone" in why
    assert not victim.is_evicted
    assert victim.refusal(victim.eviction(fenced=False), api=user) == ""
    assert victim.is_evicted


def test_without_a_leadership_only_the_scheduler_evicts_nobody(server: Layout, leader: Leader, victim: Victim) -> None:
    """Evictions of others do not depend on it: nodes can be drained."""
    real, dry = victim.eviction(), victim.eviction(dryRun=["All"])
    assert victim.refusal(dry) == ""
    leader.resign()
    try:
        wait.until(lambda: victim.refusal(dry), what="the fence without its parameter", timeout_s=PATIENCE_S)
        assert "no params found" in victim.refusal(real)
        assert not victim.is_evicted
        drained = ("drain", NODE, "--pod-selector=app=victim", "--force", "--timeout=1s")
        with pytest.raises(LabError, match="victim"):  # no kubelet ends its containers
            kubectl.run(server, *drained)
        assert victim.is_evicted
    finally:
        kubectl.run(server, "uncordon", NODE)
        leader.lead()


@pytest.mark.parametrize("where", SYSTEM_NAMESPACES)
def test_the_scheduler_evicts_nothing_of_the_system(victim: Victim, where: str) -> None:
    """Whatever pod: admission comes before the API server looks for it. Elsewhere the same request finds none."""
    body = victim.eviction()
    body["metadata"] |= {"name": "some-pod", "namespace": where}
    assert f"pod some-pod is of namespace {where}" in victim.refusal(body)
    body["metadata"]["namespace"] = victim.namespace
    assert "404 NotFound" in victim.refusal(body)


def test_the_scheduler_evicts_by_uid_and_with_the_pods_own_grace_period(victim: Victim) -> None:
    """A late Eviction does not meet another pod of the name, and no pod ends before its containers had their time."""
    by_name = victim.eviction()
    del by_name["deleteOptions"]
    for body in (by_name, victim.eviction(preconditions={}), victim.eviction(gracePeriodSeconds=1)):
        assert "only by its UID (deleteOptions.preconditions) and with its own grace" in victim.refusal(body)
    of_another = victim.eviction(preconditions={"uid": "00000000-0000-0000-0000-000000000000"})
    assert "409 Conflict" in victim.refusal(of_another)
    assert not victim.is_evicted


def test_a_budget_without_disruptions_left_refuses_the_leader(server: Layout, victim: Victim) -> None:
    """The answer is 429, TooManyRequests, as for anybody; with a budget that permits it the same Eviction passes."""
    api, namespace = client(server), victim.namespace
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keeps"}}
    spec = {"selector": {"matchLabels": {"app": "victim"}}, "minAvailable": 1}
    api.create({**budget, "spec": spec}, namespace=namespace)
    # The pod was made by hand, so the controller needs no scale, and it must be ready to count as healthy.
    api.until(
        lambda budgets: budgets["keeps"].get("status", {}).get("currentHealthy") == 1,
        "pdb",
        namespace=namespace,
        what="the budget",
    )
    why = victim.refusal(victim.eviction())
    assert "429 TooManyRequests" in why
    assert "disruption budget" in why
    assert not victim.is_evicted
    api.delete("pdb", "keeps", namespace=namespace)
    assert victim.refusal(victim.eviction()) == ""


def test_without_its_role_the_scheduler_evicts_nobody(server: Layout, victim: Victim) -> None:
    """Who deletes the binding of that role stops evictions at once, whatever the scheduler's settings are."""
    name, dry, api = "tranche-scheduler-preemption", victim.eviction(dryRun=["All"]), client(server)
    binding = api.get("clusterrolebinding", name)
    assert victim.refusal(dry) == ""
    api.delete("clusterrolebinding", name)
    try:
        why = wait.until(lambda: victim.refusal(dry), what="the right to be gone", timeout_s=PATIENCE_S)
        assert 'cannot create resource "pods/eviction"' in why
    finally:
        kept = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
        api.apply({**kept, "metadata": {"name": name}})
    wait.until(lambda: not victim.refusal(dry), what="the right again", timeout_s=PATIENCE_S)
    assert not victim.is_evicted


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_users_nominate_no_node(server: Layout, namespace: str, role: str) -> None:
    """Who may do everything in a namespace does not write the status of pods, by which cards are kept for a pod."""
    client(server).create(prepared(), namespace=namespace)
    user, patch = identities.tenant(server, namespace, role=role), {"status": {"nominatedNodeName": NODE}}
    why = refusal(lambda: user.patch("pods", "p", patch, namespace=namespace, subresource="status"))
    assert "forbidden" in why
    assert "nominatedNodeName" not in client(server).get("pod", "p", namespace=namespace)["status"]
