"""A pod's cards become free when its containers have ended, which only its node can report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import components, kubeconfig, kubectl, wait
from lab.client import client
from lab.connection import RefusedError
from lab.errors import LabError
from lab.processes import Daemon
from tests.system.conftest import PATIENCE_S, Namespace, as_node, pod
from tests.system.support import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
NODE = "gpu-sim-0"
DEAD_NODE = "gpu-dead-0"
AT_ONCE = ("--force", "--grace-period=0", "--wait=false")


def refusal(namespace: Namespace, *arguments: str, stdin: str | None = None, identity: Path | None = None) -> str:
    """Run kubectl, which must fail; return its message."""
    with pytest.raises(LabError) as caught:
        kubectl.run(namespace.layout, "-n", namespace.name, *arguments, stdin=stdin, kubeconfig=identity)
    return caught.value.why


def placed(namespace: Namespace, name: str, *, node: str = NODE, **labels: str) -> None:
    """Create a pod that holds a card of a node and has a grace period of a minute."""
    sent = pod(name, node=node, labels=labels, gpu=1, gpumem=100)
    sent["spec"]["terminationGracePeriodSeconds"] = 60
    namespace.create(sent)
    wait.until(
        lambda: namespace.pod(name)["status"]["phase"] == "Running", what=f"{name} running", timeout_s=PATIENCE_S
    )


def evict(namespace: Namespace, name: str, *, grace: int) -> tuple[tuple[str, ...], str]:
    """Return arguments and input of kubectl that evict a pod."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace.name},
        "deleteOptions": {"gracePeriodSeconds": grace},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/eviction"
    return ("create", "--raw", path, "-f", "-"), json.dumps(body)


def phase_refusal(namespace: Namespace, name: str, phase: str, *, node: str = "") -> str:
    """Write a pod's phase, which must be rejected for another reason than a conflict; return the message."""

    def why() -> str | None:
        with pytest.raises(RefusedError) as caught:
            namespace.set_phase(name, phase, node=node)
        return caught.value.message if caught.value.reason != "Conflict" else None

    return wait.until(why, what="a refusal of the phase", timeout_s=PATIENCE_S)


def gone(namespace: Namespace, name: str) -> None:
    """Wait until a pod is gone."""
    wait.until(
        lambda: not namespace.kubectl("get", "pod", name, "--ignore-not-found"),
        what=f"the end of {name}",
        timeout_s=PATIENCE_S,
    )


def tenant(namespace: Namespace) -> Path:
    """Return the kubeconfig of a user with the role `edit` in a namespace."""
    namespace.kubectl("create", "serviceaccount", "tenant")
    account = f"--serviceaccount={namespace.name}:tenant"
    namespace.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", account)
    return kubeconfig.service_account_kubeconfig(namespace.layout, namespace=namespace.name, name="tenant")


# ---- deletion --------------------------------------------------------------------------------------------------------


def test_immediate_deletion_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """This holds for tenant, administrator and other nodes, for one pod and for all; the error names the remedy."""
    identity = tenant(namespace)
    placed(namespace, "holder")
    why = refusal(namespace, "delete", "pod", "holder", *AT_ONCE, identity=identity)
    assert f"pod holder holds GPUs of node {NODE}" in why
    assert '"--grace-period=1"' in why
    assert "node.kubernetes.io/out-of-service" in why
    assert "holds GPUs" in refusal(namespace, "delete", "pod", "holder", *AT_ONCE)
    assert "holds GPUs" in refusal(namespace, "delete", "pods", "--all", *AT_ONCE)
    body = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    path = f"/api/v1/namespaces/{namespace.name}/pods"
    assert "holds GPUs" in refusal(namespace, "delete", "--raw", path, "-f", "-", stdin=body)
    other = as_node("gpu-sim-1")
    assert "gpu-sim-1" in refusal(namespace, "delete", "pod", "holder", *AT_ONCE, *other)
    assert "deletionTimestamp" not in namespace.pod("holder")["metadata"]

    kubectl.run(tranche, "-n", namespace.name, "delete", "pod", "holder", "--grace-period=1", kubeconfig=identity)
    gone(namespace, "holder")


def test_pods_without_cards_can_be_deleted_immediately(tranche: Layout, namespace: Namespace) -> None:
    """Ordinary pods, pending pods, and pods whose containers have ended hold no share."""
    placed(namespace, "ended")
    namespace.set_phase("ended", "Succeeded", node=NODE)
    ordinary = pod("ordinary", node=NODE)
    ordinary["spec"]["terminationGracePeriodSeconds"] = 60
    namespace.create(ordinary, pod("waiting", node="nowhere", gpu=1, gpumem=100))
    namespace.unplaced("waiting")
    for name in ("ended", "ordinary", "waiting"):
        namespace.kubectl("delete", "pod", name, *AT_ONCE)
        gone(namespace, name)


def test_grace_period_of_zero_is_not_possible(tranche: Layout, namespace: Namespace) -> None:
    """It would free the share immediately on any deletion: admission sets it to 1, or the pod is rejected."""
    sent = pod("hasty", node=NODE, gpu=1, gpumem=100)
    assert sent["spec"]["terminationGracePeriodSeconds"] == 0
    prepared = json.loads(
        namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(sent))
    )
    assert prepared["spec"]["terminationGracePeriodSeconds"] == 1

    # As the webhook would have left it, by a user who bypasses the webhook.
    prepared["spec"]["terminationGracePeriodSeconds"] = 0
    prepared["metadata"] = {"name": "handmade", "labels": {"hami.io/webhook": "ignore"}}
    why = refusal(namespace, "create", "-f", "-", stdin=json.dumps(prepared))
    assert "spec.terminationGracePeriodSeconds is 0" in why
    prepared["spec"]["terminationGracePeriodSeconds"] = 1
    namespace.create(prepared)


# ---- eviction --------------------------------------------------------------------------------------------------------


def test_immediate_eviction_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """In an opted-in namespace this holds for a tenant and an administrator; with a grace period of 1 s it succeeds."""
    identity = tenant(namespace)
    placed(namespace, "holder")
    arguments, body = evict(namespace, "holder", grace=0)
    for user in (identity, None):
        why = refusal(namespace, *arguments, stdin=body, identity=user)
        assert "pod holder may hold GPUs" in why
        assert "gracePeriodSeconds 1" in why
    arguments, body = evict(namespace, "holder", grace=1)
    kubectl.run(tranche, *arguments, stdin=body, kubeconfig=identity)
    gone(namespace, "holder")


def test_elsewhere_only_users_who_may_cordon_evict_immediately(tranche: Layout, plain_namespace: Namespace) -> None:
    """A pod may have opted in by its own label, so a tenant may not; users who may cordon nodes can drain them."""
    identity = tenant(plain_namespace)
    placed(plain_namespace, "holder", **{"gpu.scheduling/injection": "enabled"})
    ordinary = pod("ordinary", node=NODE)
    plain_namespace.create(ordinary)
    arguments, body = evict(plain_namespace, "holder", grace=0)
    assert "may hold GPUs" in refusal(plain_namespace, *arguments, stdin=body, identity=identity)
    arguments, body = evict(plain_namespace, "ordinary", grace=0)
    kubectl.run(tranche, *arguments, stdin=body)
    gone(plain_namespace, "ordinary")


# ---- phase -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_only_its_node_can_end_a_pod(tranche: Layout, namespace: Namespace, phase: str) -> None:
    """An administrator and another node are rejected; the phase that its own node writes is accepted, and is final."""
    placed(namespace, "holder")
    before = truth.scheduler_shares(tranche, namespace.name, "holder")
    assert before
    why = phase_refusal(namespace, "holder", phase)
    assert f"only its node {NODE} may change it from Running to {phase}, not " in why
    assert "can only update pod status for pods" in phase_refusal(namespace, "holder", phase, node="gpu-sim-1")
    assert namespace.pod("holder")["status"]["phase"] == "Running"
    assert truth.scheduler_shares(tranche, namespace.name, "holder") == before

    namespace.set_phase("holder", phase, node=NODE)
    wait.until(
        lambda: not truth.scheduler_shares(tranche, namespace.name, "holder"),
        what="the freed share",
        timeout_s=PATIENCE_S,
    )
    why = phase_refusal(namespace, "holder", "Running")
    assert f"may change it from {phase} to Running" in why


def test_other_status_fields_can_be_written(tranche: Layout, namespace: Namespace) -> None:
    """Schedulers and controllers can write conditions, and the phase of pods without cards."""
    placed(namespace, "holder")
    condition = {"type": "example.com/checked", "status": "True"}
    patch = json.dumps({"status": {"conditions": [condition]}})
    namespace.kubectl("patch", "pod", "holder", "--subresource=status", "-p", patch)
    namespace.create(pod("ordinary", node=NODE))
    namespace.placed(2)
    namespace.set_phase("ordinary", "Succeeded")


# ---- on a real node --------------------------------------------------------------------------------------------------


def processes(mark: str) -> list[int]:
    """Return the IDs of the processes on this machine whose command line contains `mark`."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pids


@pytest.mark.kubelet
def test_no_share_is_freed_while_its_process_runs(tranche_node: Layout, namespace: Namespace) -> None:
    """A pod whose process ignores SIGTERM keeps its card after deletion, eviction and a changed phase."""
    node = tranche_node.node_name
    sent = pod("stubborn", node=node, gpu=1)
    mark = f"stubborn-in-{namespace.name}"
    sent["spec"]["terminationGracePeriodSeconds"] = 15
    sent["spec"]["containers"][0]["command"] = ["sh", "-c", f"trap '' TERM; m={mark}; while true; do sleep 1; done"]
    namespace.create(sent)
    namespace.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/stubborn")
    assert truth.scheduler_shares(tranche_node, namespace.name, "stubborn")
    assert processes(mark)

    namespace.delete("pod", "stubborn", wait=False)
    assert "holds GPUs" in refusal(namespace, "delete", "pod", "stubborn", *AT_ONCE)
    arguments, body = evict(namespace, "stubborn", grace=0)
    assert "may hold GPUs" in refusal(namespace, *arguments, stdin=body)
    assert "only its node" in phase_refusal(namespace, "stubborn", "Succeeded")

    def freed() -> bool:
        ran = bool(processes(mark))  # read before the ledger: a process that ends in between proves nothing
        is_held = bool(truth.scheduler_shares(tranche_node, namespace.name, "stubborn"))
        assert is_held or not processes(mark), "the share is free while its process runs"
        return not ran and not is_held

    wait.until(freed, what="a freed share", timeout_s=PATIENCE_S)
    gone(namespace, "stubborn")


# ---- a node that never returns ---------------------------------------------------------------------------------------


@pytest.fixture
def dead_node(tranche: Layout) -> Iterator[Callable[[], None]]:
    """An additional simulated node with cards; the function stops its kubelet."""
    account = (components.LAB_NAMESPACE, "simulated-nodes")
    component = components.Component("simulated-dead-node", account, ("lab.simulated", DEAD_NODE))
    kubelet = Daemon(tranche, component.name)
    fleet_file = tranche.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    components.start(tranche, component)
    wait.until(
        lambda: kubectl.run(tranche, "get", "node", DEAD_NODE, "--ignore-not-found"), what="node", timeout_s=PATIENCE_S
    )
    fleet_file.write_text(before + f"{DEAD_NODE}: {{count: 1, memoryMiB: 1000}}\n", encoding="utf-8")
    yield kubelet.stop
    kubelet.stop()
    fleet_file.write_text(before, encoding="utf-8")
    client(tranche).delete("node", DEAD_NODE, missing_ok=True)
    client(tranche).delete("gpunodestatus", DEAD_NODE, missing_ok=True)


def test_pods_of_a_dead_node_can_be_removed(
    tranche: Layout, namespace: Namespace, dead_node: Callable[[], None]
) -> None:
    """An administrator taints the node as out of service, and the pod garbage collector deletes its pods."""
    placed(namespace, "stuck", node=DEAD_NODE)
    dead_node()
    namespace.delete("pod", "stuck", wait=False)
    assert "holds GPUs" in refusal(namespace, "delete", "pod", "stuck", *AT_ONCE)
    # The node controller writes the same after the 50 s for which no heartbeat came.
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    namespace.api.patch("node", DEAD_NODE, unknown, subresource="status", by="strategic")
    kubectl.run(tranche, "taint", "node", DEAD_NODE, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
    namespace.until(lambda pods: "stuck" not in pods, what="the end of a pod on a dead node")
