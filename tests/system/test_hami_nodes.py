"""Nodes that HAMi's plugin serves: HAMi's handshake, and no stale lock (HAMi's pain points 1 to 6)."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from allocation.wire import hami
from lab import components, kubeconfig, kubectl, ports, wait
from lab.client import client
from lab.errors import LabError
from lab.layout import Port
from lab.processes import Daemon
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit, truth
from tests.system.support.hami_nodes import LOCK, NODES, PLUGIN, component, hami_nodes, locks, start_plugin
from tests.system.support.hami_plugin import card
from tests.system.test_recovery import settled, start_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
KILLS = {"scheduler": repetitions(3, 12), PLUGIN: repetitions(10, 88)}
PODS, ROUND_PODS = repetitions(18, 57), 3


@pytest.fixture(scope="module")
def plugin(tranche: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The process that simulates the plugins of the nodes."""
    with hami_nodes(tranche, tmp_path_factory.mktemp("component")) as daemon:
        yield daemon


def on_hami(name: str, *nodes: str, **limits: int) -> dict[str, Any]:
    """Return the manifest of a pod for the given nodes, by default for all nodes that HAMi's plugin serves."""
    manifest = pod(name, **limits)
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*(nodes or NODES)]}]}
    manifest["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return manifest


def served(namespace: Namespace, count: int, *, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Wait until the plugin has served `count` pods and no node is locked, and return the pods."""

    def all_served() -> list[dict[str, Any]] | None:
        pods = namespace.pods()
        done = [each for each in pods if each["metadata"].get("annotations", {}).get("hami.io/bind-phase") == "success"]
        return pods if len(done) == len(pods) == count and not locks(namespace.layout) else None

    return wait.until(all_served, what=f"{count} pods served in {namespace.name}", timeout_s=timeout_s)


def test_plugin_serves_pod_by_hamis_protocol(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """Every container has an entry in the string, even without a GPU, and the plugin serves each GPU entry once."""
    manifest = on_hami("many", NODES[0])
    (plain,) = manifest["spec"]["containers"]
    gpu = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000, "nvidia.com/gpucores": 20}
    manifest["spec"]["initContainers"] = [{**plain, "name": "init", "command": ["true"]}]
    manifest["spec"]["containers"] = [
        {**plain, "name": "web"},
        {**plain, "name": "one", "resources": {"limits": gpu}},
        {**plain, "name": "two", "resources": {"limits": {**gpu, "nvidia.com/gpu": 2}}},
    ]
    namespace.create(manifest)
    (found,) = served(namespace, 1)
    annotations = found["metadata"]["annotations"]
    entries = hami.decode_devices(annotations["hami.io/vgpu-devices-allocated"])
    assert [len(entry) for entry in entries] == [0, 0, 1, 2]
    assert annotations["hami.io/vgpu-devices-allocated"].count(";") == 4
    assert annotations["hami.io/vgpu-devices-to-allocate"] == ";;;;"
    assert annotations["hami.io/vgpu-node"] == NODES[0]
    assert annotations["hami.io/bind-time"].isdecimal()
    uid = found["metadata"]["uid"]
    lines = [line.split()[2:] for line in plugin.log.read_text().splitlines() if line.startswith(f"serves {uid}")]
    assert [position for position, _ in lines] == ["2", "3"]
    # HAMi-core, which the plugin installs, reads integers only.
    assert annotations["cuda-visible-devices.gpu.scheduling/two"] == "0,1"
    assert annotations["nvidia-visible-devices.gpu.scheduling/two"] == ",".join(card(NODES[0], each) for each in (0, 1))


def test_concurrent_bindings_to_one_node_are_serialised(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """Twelve pods for one node each take the lock; none waits for the lock's timeout, and none is rejected."""
    namespace.create(*(on_hami(f"p{index}", NODES[1], gpu=1, gpumem=1000) for index in range(12)))
    served(namespace, 12)
    accepted = truth.bindings(audit.writes(tranche, namespace=namespace.name))
    assert set(accepted.values()) == {1}
    assert len(accepted) == 12
    truth.recount(tranche)


def test_share_is_not_freed_while_its_pod_runs(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """A pod that HAMi's plugin serves cannot be deleted immediately, and only its node can declare it ended."""
    namespace.create(on_hami("holder", NODES[0], gpu=1, gpumem=1000))
    served(namespace, 1)
    with pytest.raises(LabError, match="pod holder holds GPUs of node"):
        namespace.delete("pod", "holder", grace_s=0, wait=False)
    with pytest.raises(LabError, match=f"only its node {NODES[0]} may change it"):
        namespace.kubectl("patch", "pod", "holder", "--subresource=status", "-p", '{"status": {"phase": "Failed"}}')


def test_nodes_without_hamis_plugin_are_never_locked(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """The scheduler writes to no Node except those of HAMi's plugin."""
    earlier = len(audit.attempts(tranche, user=audit.SCHEDULER))  # any node may have had the plugin before
    namespace.create(pod("simulated", node="gpu-sim-0", gpu=1, gpumem=100))
    (placed,) = namespace.placed(1)
    assert "hami.io/bind-phase" not in placed["metadata"]["annotations"]
    assert "hami.io/vgpu-devices-to-allocate" not in placed["metadata"]["annotations"]
    written = {
        each["objectRef"]["name"]
        for each in audit.attempts(tranche, user=audit.SCHEDULER)[earlier:]
        if each["objectRef"]["resource"] == "nodes"
    }
    assert written <= set(NODES)


def test_lock_of_hamis_scheduler_is_respected(
    tranche: Layout, plugin: Daemon, namespace: Namespace, plain_namespace: Namespace
) -> None:
    """The scheduler waits while HAMi's scheduler binds a pod there, and continues when that pod is gone."""
    foreign = {**pod("theirs"), "metadata": {"name": "theirs"}}
    foreign["spec"]["schedulerName"] = "hami-scheduler"
    plain_namespace.create(foreign)
    lock = f"2026-01-01T00:00:00Z,{plain_namespace.name},theirs"
    client(tranche).patch("node", NODES[2], {"metadata": {"annotations": {LOCK: str(lock)}}})
    namespace.create(on_hami("waits", NODES[2], gpu=1, gpumem=100), on_hami("other", NODES[0], gpu=1, gpumem=100))
    (first,) = namespace.placed(1)
    assert first["metadata"]["name"] == "other"
    assert locks(tranche)[NODES[2]] == lock
    plain_namespace.delete("pod", "theirs")
    served(namespace, 2)


def test_stale_lock_is_released(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """A lock is stale if its pod does not exist, was already served, or was never bound."""
    namespace.create(on_hami("done", NODES[0], gpu=1, gpumem=100), on_hami("never", gpu=1, gpumem=999999))
    namespace.unplaced("never")
    wait.until(
        lambda: namespace.pod("done")["metadata"].get("annotations", {}).get("hami.io/bind-phase") == "success",
        what="a served pod",
        timeout_s=PATIENCE_S,
    )
    for node, name in zip(NODES, ("gone", "done", "never"), strict=True):
        client(tranche).patch(
            "node", node, {"metadata": {"annotations": {LOCK: f"2026-01-01T00:00:00Z,{namespace.name},{name}"}}}
        )
    wait.until(lambda: not locks(tranche), what="no lock", timeout_s=PATIENCE_S)


def test_deleting_a_pod_releases_its_lock(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """The plugin is dead, so its pod keeps the lock; when the pod is deleted the next one gets the lock."""
    plugin.stop()
    try:
        namespace.create(on_hami("first", NODES[0], gpu=1, gpumem=100))
        namespace.placed(1)
        assert locks(tranche)[NODES[0]].endswith(f",{namespace.name},first")
        namespace.create(on_hami("second", NODES[0], gpu=1, gpumem=100))
        namespace.delete("pod", "first")
        wait.until(
            lambda: locks(tranche).get(NODES[0], "").endswith(f",{namespace.name},second"),
            what="the second pod's lock",
            timeout_s=PATIENCE_S,
        )
    finally:
        start_plugin(tranche)
    served(namespace, 1)


def test_only_plugin_and_scheduler_write_the_handshake(tranche: Layout, plugin: Daemon, namespace: Namespace) -> None:
    """The plugin may write its two keys, the scheduler only the lock, and other users none of them."""
    namespace.create(on_hami("guarded", NODES[0], gpu=1, gpumem=100))
    served(namespace, 1)
    plugin_identity = kubeconfig.service_account_kubeconfig(tranche, namespace="kube-system", name=PLUGIN)
    scheduler_identity = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-scheduler"
    )

    def annotate(what: str, annotation: str, identity: Path | None = None) -> str:
        try:
            namespace_ = () if what.startswith("node/") else ("-n", namespace.name)
            kubectl.run(tranche, *namespace_, "annotate", "--overwrite", what, annotation, kubeconfig=identity)
        except LabError as error:
            return error.why
        return ""

    assert annotate("pod/guarded", "hami.io/bind-phase=success", plugin_identity) == ""
    assert annotate("pod/guarded", "hami.io/vgpu-devices-to-allocate=;", plugin_identity) == ""
    for key in ("hami.io/vgpu-devices-allocated", "gpu.scheduling/allocation", "hami.io/vgpu-node"):
        assert f"annotation {key} says which GPUs the pod has" in annotate("pod/guarded", f"{key}=x", plugin_identity)
    assert "says which GPUs the pod has" in annotate("pod/guarded", "hami.io/bind-phase=failed")
    only = "the scheduler may write nothing of a node but the annotation hami.io/mutex.lock"
    assert only in annotate(f"node/{NODES[0]}", "hami.io/node-nvidia-register=[]", scheduler_identity)
    assert only in annotate("node/gpu-sim-0", "hami.io/device-cordon=x", scheduler_identity)


def test_nodes_that_cannot_be_locked_are_avoided(
    tranche: Layout, plugin: Daemon, namespace: Namespace, tmp_path: Path
) -> None:
    """Without the component, the reason names it, and pods go to nodes without locks until it is installed."""
    rights = [each for each in component(tranche, tmp_path) if each["kind"] == "ClusterRoleBinding"]
    namespace.create(on_hami("before", NODES[0], gpu=1, gpumem=100))
    served(namespace, 1)
    kubectl.run(tranche, "delete", "clusterrolebinding", *(each["metadata"]["name"] for each in rights))
    try:
        # The fuller node is preferred, but it cannot be locked.
        namespace.create(on_hami("elsewhere", NODES[0], "gpu-sim-0", gpu=1, gpumem=100))
        namespace.placed(2)
        assert namespace.pod("elsewhere")["spec"]["nodeName"] == "gpu-sim-0"
        namespace.create(on_hami("waits", NODES[0], gpu=1, gpumem=100))
        assert "apply the component manifests/hami-nodes" in namespace.unplaced("waits")
    finally:
        client(tranche).apply(*rights)
    namespace.placed(3)


def test_random_kills_of_scheduler_and_plugin_lose_nothing(
    tranche: Layout, plugin: Daemon, namespace: Namespace
) -> None:
    """After SIGKILL at random every pod is bound once and served, no lock remains, and no card is over its capacity.

    Both are started again at once, as a kubelet does; the next scheduler waits until the Lease has expired.
    """
    count = 0
    with ThreadPoolExecutor() as threads:
        killers = [threads.submit(_kill_scheduler, tranche), threads.submit(_kill_plugin, tranche)]
        while not all(killer.done() for killer in killers):
            if count < PODS:
                names = (f"p{count + index:03}" for index in range(ROUND_PODS))
                namespace.create(*(on_hami(name, gpu=1, gpumem=1000, gpucores=3) for name in names))
                count += ROUND_PODS
            futures.wait(killers, timeout=2.0)
    for killer in killers:
        killer.result()
    pods = served(namespace, count, timeout_s=2 * PATIENCE_S)
    attempts = audit.attempts(tranche, namespace=namespace.name)
    assert set(truth.bindings([each for each in attempts if audit.code(each) < 300]).values()) <= {1}
    assert {each["spec"]["nodeName"] for each in pods} <= set(NODES)
    assert {each["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"] for each in pods} == {";"}
    truth.recount(tranche)
    settled(tranche)


def _kill_scheduler(layout: Layout) -> None:
    """Kill the scheduler shortly after it has begun to decide, KILLS times."""
    draw = random.Random(1)  # noqa: S311 -- when to kill
    component = components.component(layout, "scheduler")
    for _ in range(KILLS["scheduler"]):
        time.sleep(draw.uniform(0.0, 1.0))
        _kill(layout, "scheduler")
        wait.until(lambda: not ports.taken(layout, (Port.SCHEDULER,)), what="the scheduler's end", timeout_s=PATIENCE_S)
        start_scheduler(layout)
        wait.until(lambda: components.is_ready(component), what="a new term", timeout_s=PATIENCE_S)


def _kill_plugin(layout: Layout) -> None:
    """Kill the plugin at random moments, KILLS times."""
    draw = random.Random(2)  # noqa: S311 -- when to kill
    for _ in range(KILLS[PLUGIN]):
        time.sleep(draw.uniform(0.3, 1.5))
        _kill(layout, PLUGIN)
        start_plugin(layout)


def _kill(layout: Layout, name: str) -> None:
    """Kill a process and reap it."""
    daemon = Daemon(layout, name)
    pid = daemon.pid
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    wait.until(lambda: not daemon.is_running, what=f"the end of {name}", timeout_s=PATIENCE_S)
