"""The scheduler's Evictions: the API server itself refuses those of a former leader, and those that nobody should make.

Each is made with the scheduler's own identity, as a process that stopped between decision and request would make it, or
a thief of its token.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import FENCED_LABEL, LEADER
from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import tenants
from tests.system.test_deposed import without_scheduler
from tests.system.test_fence import leadership

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.layout import Layout

__all__ = ["without_scheduler"]  # a fixture
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
NODE = "gpu-sim-0"
SYSTEM = "tranche-system"
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", SYSTEM)


class Victim:
    """A pod that holds a card, and what happens if it is evicted."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        sent = pod("victim", node=NODE, labels={"app": "victim"}, gpu=1, gpumem=100)
        namespace.create(sent)
        namespace.placed(1)
        self.uid: str = namespace.pod("victim")["metadata"]["uid"]

    def refusal(self, body: dict[str, Any], *, identity: Path) -> str:
        """Post an Eviction; return the error, empty if it is accepted."""
        where = body["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{where}/pods/{body['metadata']['name']}/eviction"
        layout = self.namespace.layout
        try:
            kubectl.run(layout, "create", "--raw", path, "-f", "-", stdin=json.dumps(body), kubeconfig=identity)
        except LabError as error:
            return error.why
        return ""

    @property
    def is_evicted(self) -> bool:
        """Whether the pod is being deleted, or gone by now."""
        found = self.namespace.kubectl("get", "pod", "victim", "--ignore-not-found", "-o", "json")
        return not found or "deletionTimestamp" in json.loads(found)["metadata"]


@pytest.fixture
def victim(namespace: Namespace) -> Victim:
    """A running pod."""
    return Victim(namespace)


@pytest.fixture
def scheduler(tranche: Layout) -> Path:
    """The kubeconfig of the scheduler's own account."""
    return kubeconfig.service_account_kubeconfig(tranche, namespace=SYSTEM, name="tranche-scheduler")


@pytest.fixture
def eviction(tranche: Layout, victim: Victim) -> Callable[..., dict[str, Any]]:
    """A function that returns an Eviction of the victim as the leader makes it, or with a token of another."""

    def make(*, token: str = "", fenced: bool = True, **options: Any) -> dict[str, Any]:
        epoch, identity = leadership(tranche)
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "name": "victim",
                "namespace": victim.namespace.name,
                "labels": {FENCED_LABEL: "true"} if fenced else {},
                "annotations": {LEADER: token or f"{epoch}/{identity}"},
            },
            "deleteOptions": {"preconditions": {"uid": victim.uid}, **options},
        }

    return make


Eviction = dict[str, Any]


def test_the_leader_evicts(victim: Victim, scheduler: Path, eviction: Callable[..., Eviction]) -> None:
    """With the label, its token, and the UID."""
    assert victim.refusal(eviction(), identity=scheduler) == ""
    assert victim.is_evicted


def test_a_former_leader_evicts_nobody(
    tranche: Layout, victim: Victim, scheduler: Path, eviction: Callable[..., Eviction]
) -> None:
    """Its token is that of an earlier term, or it has none; the error names the leader."""
    epoch, identity = leadership(tranche)
    why = victim.refusal(eviction(token=f"{epoch - 1}/{identity}"), identity=scheduler)
    assert f"the scheduler with token {epoch - 1}/{identity} does not lead any more" in why
    assert f"{epoch}/{identity} does" in why
    without_token = eviction()
    del without_token["metadata"]["annotations"]
    assert "the scheduler with token none does not lead any more" in victim.refusal(without_token, identity=scheduler)
    assert not victim.is_evicted


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
def test_the_scheduler_evicts_nobody_without_the_label(
    victim: Victim, scheduler: Path, eviction: Callable[..., Eviction], version: str
) -> None:
    """The fence selects Evictions by their label, so the scheduler's must have it, in every version of the API."""
    body = {**eviction(fenced=False), "apiVersion": version}
    why = victim.refusal(body, identity=scheduler)
    assert f'pod victim may be evicted by the Tranche scheduler only with the label {FENCED_LABEL}: "true"' in why
    assert not victim.is_evicted


def test_nobody_else_uses_the_label(tranche: Layout, victim: Victim, eviction: Callable[..., Eviction]) -> None:
    """Neither an administrator nor a user of the namespace who knows the token; without the label both evict."""
    user = tenants.account(victim.namespace, "drains", role="edit").kubeconfig
    for identity in (tranche.kubeconfig, user):
        why = victim.refusal(eviction(), identity=identity)
        assert "an Eviction with the label gpu.scheduling/fenced is the Tranche scheduler's alone" in why
    assert not victim.is_evicted
    assert victim.refusal(eviction(fenced=False), identity=user) == ""
    assert victim.is_evicted


def test_without_a_leadership_only_the_scheduler_evicts_nobody(
    victim: Victim, without_scheduler: Layout, scheduler: Path, eviction: Callable[..., Eviction]
) -> None:
    """Evictions of others do not depend on it: nodes can be drained."""
    real, dry = eviction(), eviction(dryRun=["All"])
    assert victim.refusal(dry, identity=scheduler) == ""
    client(without_scheduler).delete("leadership", "tranche-scheduler", namespace=SYSTEM)
    wait.until(
        lambda: victim.refusal(dry, identity=scheduler), what="the fence without its parameter", timeout_s=PATIENCE_S
    )
    assert "no params found" in victim.refusal(real, identity=scheduler)
    assert not victim.is_evicted
    try:
        kubectl.run(without_scheduler, "drain", NODE, "--pod-selector=app=victim", "--force", "--timeout=50s")
    finally:
        kubectl.run(without_scheduler, "uncordon", NODE)
    assert victim.is_evicted


@pytest.mark.parametrize("where", SYSTEM_NAMESPACES)
def test_the_scheduler_evicts_nothing_of_the_system(
    victim: Victim, scheduler: Path, eviction: Callable[..., Eviction], where: str
) -> None:
    """Whatever pod: admission comes before the API server looks for it. Elsewhere the same request finds none."""
    body = eviction()
    body["metadata"] |= {"name": "some-pod", "namespace": where}
    assert f"pod some-pod is of namespace {where}" in victim.refusal(body, identity=scheduler)
    body["metadata"]["namespace"] = victim.namespace.name
    assert "(NotFound)" in victim.refusal(body, identity=scheduler)


def test_the_scheduler_evicts_by_uid_and_with_the_pods_own_grace_period(
    victim: Victim, scheduler: Path, eviction: Callable[..., Eviction]
) -> None:
    """A late Eviction does not meet another pod of the name, and no pod ends before its containers had their time."""
    by_name = eviction()
    del by_name["deleteOptions"]
    for body in (by_name, eviction(preconditions={}), eviction(gracePeriodSeconds=1)):
        assert "only by its UID (deleteOptions.preconditions) and with its own grace" in victim.refusal(
            body, identity=scheduler
        )
    of_another = eviction(preconditions={"uid": "00000000-0000-0000-0000-000000000000"})
    assert "(Conflict)" in victim.refusal(of_another, identity=scheduler)
    assert not victim.is_evicted


def test_a_budget_without_disruptions_left_refuses_the_leader(
    victim: Victim, scheduler: Path, eviction: Callable[..., Eviction]
) -> None:
    """The answer is 429, TooManyRequests, as for anybody; with a budget that permits it the same Eviction passes."""
    namespace = victim.namespace
    kubectl.run(
        namespace.layout, "-n", namespace.name, "create", "pdb", "keeps", "--selector=app=victim", "--min-available=1"
    )
    # The pod was made by hand, so the controller needs no scale, and it must be ready to count as healthy.
    wait.until(
        lambda: (
            client(namespace.layout).get("pdb", "keeps", namespace=namespace.name)["status"].get("currentHealthy") == 1
        ),
        what="the budget",
        timeout_s=PATIENCE_S,
    )
    why = victim.refusal(eviction(), identity=scheduler)
    assert "(TooManyRequests)" in why
    assert "disruption budget" in why
    assert not victim.is_evicted
    namespace.delete("pdb", "keeps")
    assert victim.refusal(eviction(), identity=scheduler) == ""


def test_without_its_role_the_scheduler_evicts_nobody(
    tranche: Layout, victim: Victim, scheduler: Path, eviction: Callable[..., Eviction]
) -> None:
    """Who deletes the binding of that role stops evictions at once, whatever the scheduler's settings are."""
    name, dry = "tranche-scheduler-preemption", eviction(dryRun=["All"])
    binding = client(tranche).get("clusterrolebinding", name)
    assert victim.refusal(dry, identity=scheduler) == ""
    client(tranche).delete("clusterrolebinding", name)
    try:
        why = wait.until(
            lambda: victim.refusal(dry, identity=scheduler), what="the right to be gone", timeout_s=PATIENCE_S
        )
        assert 'cannot create resource "pods/eviction"' in why
    finally:
        kept = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
        client(tranche).apply({**kept, "metadata": {"name": name}})
    wait.until(lambda: not victim.refusal(dry, identity=scheduler), what="the right again", timeout_s=PATIENCE_S)
    assert not victim.is_evicted


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_users_nominate_no_node(tranche: Layout, namespace: Namespace, role: str) -> None:
    """Who may do everything in a namespace does not write the status of pods, by which cards are kept for a pod."""
    identity = tenants.account(namespace, role, role=role).kubeconfig
    namespace.create(pod("waits", gpu=1, gpumem=999999))
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": {"nominatedNodeName": NODE}}))
    with pytest.raises(LabError, match="forbidden"):
        kubectl.run(tranche, "-n", namespace.name, "patch", "pod", "waits", *patch, kubeconfig=identity)
    assert "nominatedNodeName" not in namespace.pod("waits")["status"]
