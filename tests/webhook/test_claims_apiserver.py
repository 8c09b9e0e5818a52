"""GpuClaims end to end: the claims of a real API server, the webhook's process with its own ServiceAccount."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubeconfig, manifests, wait
from lab.errors import LabError
from tests.support import namespaces
from tests.support.patience import PATIENCE_S
from tests.webhook.support.claims import CLAIM, EXCLUSIVE
from tests.webhook.test_admission_apiserver import ACCOUNT, Cluster, Webhook, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NAMESPACE, OTHER = "claims-in", "claims-other"


@pytest.fixture(scope="module")
def cluster(control_plane: Layout) -> Iterator[Cluster]:
    """Yield the suite's cluster with our manifests and two namespaces that opted in."""
    prepared = Cluster(control_plane)
    manifests.install(control_plane)
    for namespace in (NAMESPACE, OTHER):
        namespaces.create(control_plane, namespace, {"gpu.scheduling/injection": "enabled"})
    yield prepared
    for namespace in (NAMESPACE, OTHER):
        prepared.api.delete("namespace", namespace, wait=False)


@pytest.fixture(scope="module")
def webhook(cluster: Cluster) -> Iterator[Webhook]:
    """Run the webhook as its ServiceAccount; the caBundle is in force when this yields."""
    identity = kubeconfig.service_account_kubeconfig(cluster.layout, namespace="tranche-system", name="tranche-webhook")
    running = Webhook(cluster.layout, str(identity))
    running.start()
    probe = pod("probe", limits={"nvidia.com/gpu": 1})

    def is_injected() -> bool:
        try:
            return cluster.scheduler(probe, namespace=NAMESPACE) == "tranche"
        except LabError:
            return False

    wait.until(is_injected, what="caBundle in force", timeout_s=PATIENCE_S)
    yield running
    running.stop()


def claim(name: str, **spec: Any) -> dict[str, Any]:
    """Return a claim of one card."""
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"count": 1}, **spec},
    }


def claim_pod(name: str, claim_name: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod that names a claim and requests nothing itself."""
    return pod(name, annotations={CLAIM: claim_name}, **metadata)


def test_claim_that_was_just_created_is_found(cluster: Cluster, webhook: Webhook) -> None:
    """In the copy or by a read: no pod has to wait for the watch."""
    for number in range(5):
        cluster.create(claim(f"new-{number}", selector={"matchLabels": {"pool": "a"}}), namespace=NAMESPACE)
        spec = cluster.create(claim_pod(f"new-{number}", f"new-{number}"), namespace=NAMESPACE)["spec"]
        assert spec["schedulerName"] == "tranche"
        assert spec["containers"][0]["resources"] == {"limits": EXCLUSIVE, "requests": EXCLUSIVE}
        assert spec["nodeSelector"] == {"pool": "a"}


def test_missing_claim_is_refused_until_it_exists(cluster: Cluster, webhook: Webhook) -> None:
    """A controller creates the pod again, so the order in which objects are applied does not matter in the end."""
    sent = claim_pod("early", "later")
    assert "GpuClaim later does not exist in namespace claims-in: create it there first" in cluster.refuses(
        sent, namespace=NAMESPACE
    )
    cluster.create(claim("later"), namespace=NAMESPACE)
    assert cluster.create(sent, namespace=NAMESPACE)["spec"]["schedulerName"] == "tranche"


def test_claim_of_another_namespace_is_not_found(cluster: Cluster, webhook: Webhook) -> None:
    """A pod cannot use the claims of others."""
    cluster.create(claim("theirs"), namespace=OTHER)
    words = cluster.refuses(claim_pod("steals", "theirs"), namespace=NAMESPACE)
    assert "GpuClaim theirs does not exist in namespace claims-in" in words


def test_deleted_claim_is_forgotten(cluster: Cluster, webhook: Webhook) -> None:
    """Once the watch has delivered the deletion, its pods are refused; those that exist keep what they were given."""
    cluster.create(claim("short"), namespace=NAMESPACE)
    cluster.create(claim_pod("keeps", "short"), namespace=NAMESPACE)
    cluster.api.delete("gpuclaim", "short", namespace=NAMESPACE)

    def is_refused() -> bool:
        try:
            cluster.scheduler(claim_pod("late", "short"), namespace=NAMESPACE)
        except LabError as error:
            return "GpuClaim short does not exist" in error.why
        return False

    wait.until(is_refused, what="the claim forgotten", timeout_s=PATIENCE_S)
    assert cluster.get(NAMESPACE, "keeps")["spec"]["containers"][0]["resources"]["limits"] == EXCLUSIVE


def test_static_allocation_of_a_claim_is_complete(cluster: Cluster, webhook: Webhook) -> None:
    """A trusted identity names the cards; the policies admit what admission adds, and no user changes it later."""
    cluster.create(claim("fixed"), namespace=NAMESPACE)
    share = {"uuid": "GPU-a", "index": 3, "memoryMiB": 81920, "cores": 1000}
    text = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share]}})
    sent = pod("static", annotations={CLAIM: "fixed", "gpu.scheduling/allocation": text})
    made = cluster.create(sent, namespace=NAMESPACE, user=f"{ACCOUNT}tranche-static")
    annotations = made["metadata"]["annotations"]
    mark = {"name": "fixed", "exclusivity": "Exclusive"}
    assert json.loads(annotations["gpu.scheduling/allocation"])["claim"] == mark
    assert annotations["gpu.scheduling/allocated"] == "3"
    assert annotations["cuda-visible-devices.gpu.scheduling/main"] == "0"
    assert made["spec"]["containers"][0]["resources"]["limits"] == EXCLUSIVE
    sent["metadata"]["name"] = "forged"
    assert "is not trusted to set it" in cluster.refuses(sent, namespace=NAMESPACE)


def test_contradiction_reaches_the_user(cluster: Cluster, webhook: Webhook) -> None:
    """The API server passes the message on."""
    cluster.create(claim("one"), namespace=NAMESPACE)
    sent = pod("four", limits={"nvidia.com/gpu": 4}, annotations={CLAIM: "one"})
    words = cluster.refuses(sent, namespace=NAMESPACE)
    assert "spec.containers[0].resources.limits[\"nvidia.com/gpu\"] holds '4': GpuClaim one gives 1" in words


def test_pods_without_claims_are_served_after_a_read(cluster: Cluster, webhook: Webhook) -> None:
    """The API server connects again after a review for which a claim was read."""
    for number in range(5):
        cluster.refuses(claim_pod("none", f"missing-{number}"), namespace=NAMESPACE)
        assert cluster.scheduler(pod("plain", limits={"nvidia.com/gpu": 1}), namespace=NAMESPACE) == "tranche"


def test_dead_webhook_admits_no_claim_pod(cluster: Cluster, webhook: Webhook) -> None:
    """The policy refuses the pod, and says where to look."""
    cluster.create(claim("alive"), namespace=NAMESPACE)
    webhook.stop()
    try:
        words = cluster.refuses(claim_pod("unseen", "alive"), namespace=NAMESPACE)
        assert "the pod names GpuClaim alive, but the admission webhook tranche-webhook did not give it" in words
    finally:
        webhook.start()
