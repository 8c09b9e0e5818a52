"""A pod's cards become free when its containers have ended, which only its node can report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import components, wait
from lab.client import client
from lab.connection import RefusedError
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod
from tests.system.support import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-0"
DEAD_NODE = "gpu-dead-0"


def placed(namespace: Namespace, name: str, *, node: str = NODE, **labels: str) -> None:
    """Create a pod that holds a card of a node and has a grace period of a minute."""
    sent = pod(name, node=node, labels=labels, gpu=1, gpumem=100)
    sent["spec"]["terminationGracePeriodSeconds"] = 60
    namespace.create(sent)
    wait.until(
        lambda: namespace.pod(name)["status"]["phase"] == "Running", what=f"{name} running", timeout_s=PATIENCE_S
    )


def phase_refusal(namespace: Namespace, name: str, phase: str, *, node: str = "") -> str:
    """Write a pod's phase, which must be rejected for another reason than a conflict; return the message."""

    def why() -> str | None:
        with pytest.raises(RefusedError) as caught:
            namespace.set_phase(name, phase, node=node)
        return caught.value.message if caught.value.reason != "Conflict" else None

    return wait.until(why, what="a refusal of the phase", timeout_s=PATIENCE_S)


# ---- deletion --------------------------------------------------------------------------------------------------------


def test_grace_period_of_zero_is_not_possible(tranche: Layout, namespace: Namespace) -> None:
    """It would free the share immediately on any deletion: admission sets it to 1, or the pod is rejected."""
    sent = pod("hasty", node=NODE, gpu=1, gpumem=100)
    assert sent["spec"]["terminationGracePeriodSeconds"] == 0
    (prepared,) = namespace.api.create(sent, namespace=namespace.name, dry_run=True)
    assert prepared["spec"]["terminationGracePeriodSeconds"] == 1

    # As the webhook would have left it, by a user who bypasses the webhook.
    prepared["spec"]["terminationGracePeriodSeconds"] = 0
    prepared["metadata"] = {"name": "handmade", "labels": {"hami.io/webhook": "ignore"}}
    why = refusal(lambda: namespace.create(prepared))
    assert "spec.terminationGracePeriodSeconds is 0" in why
    prepared["spec"]["terminationGracePeriodSeconds"] = 1
    namespace.create(prepared)


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
    namespace.ready("stubborn")
    assert truth.scheduler_shares(tranche_node, namespace.name, "stubborn")
    assert processes(mark)

    namespace.delete("pod", "stubborn", wait=False)
    assert "holds GPUs" in refusal(lambda: namespace.delete("pod", "stubborn", grace_s=0, wait=False))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "stubborn"}}
    body = {**eviction, "deleteOptions": {"gracePeriodSeconds": 0}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/stubborn/eviction"
    assert "may hold GPUs" in refusal(lambda: namespace.api.request("POST", path, body=body))
    assert "only its node" in phase_refusal(namespace, "stubborn", "Succeeded")

    def freed() -> bool:
        ran = bool(processes(mark))  # read before the ledger: a process that ends in between proves nothing
        is_held = bool(truth.scheduler_shares(tranche_node, namespace.name, "stubborn"))
        assert is_held or not processes(mark), "the share is free while its process runs"
        return not ran and not is_held

    wait.until(freed, what="a freed share", timeout_s=PATIENCE_S)
    namespace.until(lambda pods: "stubborn" not in pods, what="the end of the pod")


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
    wait.until(lambda: client(tranche).find("node", DEAD_NODE), what="node", timeout_s=PATIENCE_S)
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
    assert "holds GPUs" in refusal(lambda: namespace.delete("pod", "stuck", grace_s=0, wait=False))
    # The node controller writes the same after the 50 s for which no heartbeat came.
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    namespace.api.patch("node", DEAD_NODE, unknown, subresource="status", by="strategic")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    namespace.api.patch("node", DEAD_NODE, {"spec": {"taints": [taint]}}, by="strategic")
    namespace.until(lambda pods: "stuck" not in pods, what="the end of a pod on a dead node")
