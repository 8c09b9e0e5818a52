"""Roles grant what the processes use and nothing else: the audit log is compared with the manifests.

That the roles cover each request is checked when a lab ends (support/whole_run.py).

Some rights are used only after a failure, so the test causes it: the Leadership is deleted, a node's report is
tampered with, the webhook's Secret is lost and restored from a backup, a pod waits twice for the same reason, a Binding
finds a pod that already has a node, volumes are not bound in time, HAMi's plugin serves a node, GPUBindings, PodGroups,
GpuQueues and GpuQuotas count, and a pod is preempted.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.device_plugin.node_view import LiveNodeView
from allocation.names import CLAIM, SYSTEM_NAMESPACE, USE_UUIDS
from allocation.request import PodRequest
from cluster.api import Api
from cluster.connect import connect
from cluster.errors import ApiError
from cluster.resource import GPU_CLAIMS, GPU_QUEUES, GPU_QUOTAS
from lab import components, fleet, kubeconfig, kubectl, manifests, wait
from lab.client import client
from lab.connection import RefusedError
from lab.errors import LabError
from lab.processes import Daemon
from scheduler.binding.binder import Binder
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.binding.volume_steps import Shown
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Node, Pod
from scheduler.volumes.bindings import ClaimKey, Match, VolumeBindings
from scheduler.volumes.objects import Claim, PersistentVolume
from tests.scheduler.support.fencing import fenced
from tests.support import access
from tests.support.patience import PATIENCE_S
from tests.support.volumes import claim, local_volume, storage_class
from tests.system.conftest import Namespace, pod
from tests.system.support import (
    coscheduling,
    expanding,
    gpubindings,
    hami_nodes,
    missing_devices,
    resizing,
    rights,
    tenants,
    whole_run,
)
from tests.system.support.whole_run import ACCOUNTS, PREFIX, SECRET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lab.layout import Layout

NOT_SERVED = "watch podgroups.scheduling.k8s.io"
"""The right to watch what this Kubernetes does not have; tests/dra/test_pod_groups.py needs it on a later one."""
pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-2"


def delete_leadership_and_lease(layout: Layout) -> None:
    """Delete the Leadership, which the leader recreates, then the Lease, which starts another term."""
    api, name = client(layout), "tranche-scheduler"

    def epoch(leaderships: Mapping[str, Any]) -> int:
        return int(leaderships[name]["spec"].get("epoch", 0)) if name in leaderships else 0

    api.delete("leadership", name, namespace=SYSTEM_NAMESPACE)
    before = api.until(epoch, "leaderships", namespace=SYSTEM_NAMESPACE, what="the Leadership")
    api.delete("lease", name, namespace=SYSTEM_NAMESPACE)
    api.until(lambda shown: epoch(shown) > before, "leaderships", namespace=SYSTEM_NAMESPACE, what="a new term")


def tamper_with_a_report(layout: Layout) -> None:
    """Change a node's annotation and delete its report and its heartbeat; the agent restores all of them."""
    api, register, heartbeat = client(layout), "hami.io/node-nvidia-register", f"agent-{NODE}"
    api.patch("node", NODE, {"metadata": {"annotations": {register: "[]"}}})
    api.delete("gpunodestatus", NODE)
    api.delete("lease", heartbeat, namespace=SYSTEM_NAMESPACE)
    api.until(lambda shown: shown.get(NODE, {}).get("status", {}).get("total") == 8, "gpunodestatuses", what="a report")
    api.until(lambda shown: shown[NODE]["metadata"]["annotations"][register] != "[]", "nodes", what="an annotation")
    api.until(lambda shown: heartbeat in shown, "leases", namespace=SYSTEM_NAMESPACE, what="a heartbeat")


def lose_the_authority(namespace: Namespace) -> None:
    """Delete the webhook's Secret, which is recreated, then restore the old one, which keeps the newer authority."""
    api, layout = namespace.api, namespace.layout
    daemon = Daemon(layout, "webhook")
    backup = api.get("secret", SECRET, namespace=SYSTEM_NAMESPACE)
    backup["metadata"] = {"name": SECRET, "labels": backup["metadata"].get("labels", {})}
    daemon.stop()
    api.delete("secret", SECRET, namespace=SYSTEM_NAMESPACE)
    components.start(layout, components.component(layout, "webhook"))
    api.until(
        lambda shown: SECRET in shown and shown[SECRET]["data"] != backup["data"],
        "secrets",
        namespace=SYSTEM_NAMESPACE,
        what="a new authority",
    )

    def is_serving() -> bool:
        with contextlib.suppress(RefusedError):
            api.create(pod("tries", gpu=1), namespace=namespace.name, dry_run=True)
            return True
        return False

    # The webhook must trust its new authority before it finds the old one, or it takes that one as its own.
    wait.until(is_serving, what="the webhook with its new authority", timeout_s=PATIENCE_S, daemons=[daemon])
    api.replace(backup, namespace=SYSTEM_NAMESPACE)
    api.until(
        lambda shown: shown[SECRET]["data"] != backup["data"],
        "secrets",
        namespace=SYSTEM_NAMESPACE,
        what="the newer authority beside the restored one",
    )
    wait.until(is_serving, what="the webhook with both authorities", timeout_s=PATIENCE_S, daemons=[daemon])


def repeat_a_reason(namespace: Namespace) -> None:
    """Let a pod wait for one reason, another, and the first again, so that the first event is counted twice.

    The first reason may be one that does not come again: a node has just been closed, or another one deleted.
    """
    namespace.create(pod("waits", node=NODE, gpu=1, gpumem=999999))
    seen: set[str] = set()

    def is_repeated() -> bool:
        current = namespace.unplaced("waits")
        if current in seen:
            return True
        seen.add(current)
        for unschedulable in (True, None):
            before = namespace.unplaced("waits")
            namespace.api.patch("node", NODE, {"spec": {"unschedulable": unschedulable}})
            is_other = partial(lambda old: namespace.unplaced("waits") != old, before)
            wait.until(is_other, what="another reason", timeout_s=PATIENCE_S)
        return False

    try:
        wait.until(is_repeated, what="a reason again", timeout_s=PATIENCE_S)
    finally:
        namespace.api.patch("node", NODE, {"spec": {"unschedulable": None}})


def request_a_mig_instance(namespace: Namespace, node: str) -> None:
    """Create a pod for which the agent must create a MIG instance first."""
    manifest = pod("sliced", node=node, gpu=1, gpumem=10000)
    manifest["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": f"GPU-{node}-1"}
    namespace.create(manifest)
    namespace.placed(1)
    namespace.delete("pods", "sliced")


async def read_the_pods_of_a_node(namespace: Namespace) -> None:
    """As the agent of a node that is a device plugin, read which cards the pods of the node have."""
    layout = namespace.layout
    kubectl.run(layout, "apply", "-f", str(manifests.ROOT / "device-plugin" / "agent.yaml"))
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-agent")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        view = LiveNodeView(Api(connection), node=NODE, resource="", socket="")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await view.allocated()
                except ApiError as error:  # the API server has not read the role yet
                    if error.status != 403:
                        raise
                    await asyncio.sleep(0.1)
                else:
                    return


async def bind_what_is_bound(namespace: Namespace) -> None:
    """As the scheduler, bind a pod that is already bound, so that it reads the pod."""
    namespace.create(pod("bound", node="gpu-sim-1"))
    (bound,) = namespace.placed(1)
    identity = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler"
    )
    spec = namespace.api.get("leadership", "tranche-scheduler", namespace=SYSTEM_NAMESPACE)["spec"]
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        token = f"{spec['epoch']}/{spec['identity']}"
        binder = Binder(fenced(Api(connection), token=token, timeout_seconds=10))
        decision = Scheduled(node="gpu-sim-0", request=PodRequest(()), allocation=None, note="")
        result = await binder.bind(msgspec.convert(bound, Pod), decision)
    assert result.outcome is Outcome.TAKEN
    namespace.delete("pods", "bound")


async def give_up_waiting_for_volumes(namespace: Namespace) -> None:
    """As the scheduler, reserve a volume and select a node, and take both back because nothing is provisioned."""
    layout = namespace.layout
    classes = [storage_class("given-back", "test.example/none"), storage_class("reserved", "test.example/none")]
    name, node = f"pv-{namespace.name}", "gpu-sim-1"
    namespace.api.apply(*classes, local_volume(name, node=node, storage_class="reserved"))
    namespace.create(
        claim("selects", storage_class="given-back"),
        claim("reserves", storage_class="reserved"),
        pod("waits-for-volumes"),
    )
    shown = {each: ClaimKey(namespace.name, each) for each in ("selects", "reserves")}
    claims = {key: msgspec.convert(namespace.get("pvc", each), Claim) for each, key in shown.items()}
    volume = msgspec.convert(namespace.api.get("pv", name), PersistentVolume)
    waits = msgspec.convert(namespace.pod("waits-for-volumes"), Pod)
    bindings = VolumeBindings((Match(shown["reserves"], name),), (shown["selects"],))
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        binder = VolumeBinder(
            fenced(Api(connection)),
            shown=Shown(
                claim=claims.get,
                volume=lambda _: volume,
                node=lambda _: msgspec.convert(namespace.api.get("node", node), Node),
                pod=lambda *_: waits,
                migrated=lambda _: (),
            ),
            metrics=Metrics(),
            timeout_seconds=1,
        )
        result = await binder.bind(waits, Scheduled(node, PodRequest(()), None, "", volumes=bindings))
    assert result is not None
    assert result.outcome is Outcome.REFUSED
    namespace.delete("pods", "waits-for-volumes")
    namespace.api.delete_all("pvc", namespace=namespace.name)
    namespace.api.delete("pv", name)
    for each in classes:
        namespace.api.delete("storageclass", each["metadata"]["name"])


def query_the_namespaced_api(namespace: Namespace) -> None:
    """Query the scheduler as an account that may view the namespace, so that it reviews the token and the right."""
    tenant = tenants.account(namespace, "asks", role="view")
    done = tenants.gpu(tenant, "top")
    assert done.returncode == 0, done.stderr


def bind_where_hamis_plugin_serves(namespace: Namespace, folder: Path) -> None:
    """Place a pod on a node that must be locked for it."""
    with hami_nodes.hami_nodes(namespace.layout, folder):
        namespace.create(pod("locks", node=hami_nodes.NODES[0], gpu=1, gpumem=100))
        namespace.placed(1)
        namespace.delete("pods", "locks")


def bind_a_pod_of_an_application(namespace: Namespace) -> None:
    """Place a pod on the card that a GPUBinding gives to its application."""
    with gpubindings.applied(namespace.layout, "labelled"):
        namespace.api.apply(gpubindings.binding("one", fleet.card(NODE, 0), "app"))
        namespace.create(pod("bound-card", labels=gpubindings.labels("app", "alice"), gpu=1, gpumem=100))
        namespace.placed(1)
        namespace.delete("pods", "bound-card")


def wait_for_a_pod_group(namespace: Namespace) -> None:
    """Let the scheduler see a PodGroup after the pod that waits for it."""
    with coscheduling.applied(namespace.layout):
        namespace.create(pod("grouped", labels={coscheduling.LABEL: "group"}, gpu=1))
        reason = "PodGroupNotFound: PodGroup group does not exist"
        wait.until(lambda: reason in namespace.unplaced("grouped"), what=reason, timeout_s=PATIENCE_S)
        namespace.create(coscheduling.pod_group("group", minMember=1))
        namespace.placed(1)
        namespace.delete("pods", "grouped")


def resize_a_pod(namespace: Namespace) -> None:
    """Let the scheduler give a running pod another size."""
    with resizing.resizing(namespace.layout, namespace):
        namespace.create(pod("resized", gpu=1, gpumem=100))
        namespace.placed(1)
        sized = resizing.Sized(namespace, "resized")
        sized.wish('{"main":{"gpumem":200}}')
        sized.until_has(200)
        namespace.delete("pods", "resized")


def bring_a_node(namespace: Namespace) -> None:
    """Let the scheduler ask for a node, and end the request when it has come."""
    with expanding.expanding(namespace.layout, "brought") as autoscaler:
        for name in ("first", "second"):
            waiting = pod(name, gpu=expanding.CARDS)
            waiting["spec"]["nodeSelector"] = autoscaler.labels
            namespace.create(waiting)
        autoscaler.until_requested()
        autoscaler.bring("brought-1")
        namespace.placed(2)
        autoscaler.until_none()
        namespace.empty()


def lose_a_card(namespace: Namespace) -> None:
    """Let the scheduler delete a pod whose card its node does not have any more."""
    node = "gpu-losing-1"
    with missing_devices.losing_node(namespace.layout, node):
        missing_devices.report(namespace.layout, node, {"index": 0}, {"index": 1})
        namespace.create(*(pod(f"on-card-{number}", node=node, gpu=1) for number in range(2)))
        namespace.placed(2)
        missing_devices.report(namespace.layout, node, {"index": 0})
        namespace.until(lambda pods: len(pods) == 1, what="the pod's end")
        namespace.empty()


def end_a_pod_with_a_lease(namespace: Namespace) -> None:
    """Let the scheduler create and delete the Lease of a card."""
    head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind}
    namespace.create({**head, "metadata": {"name": "one"}, "spec": {"devices": {"count": 1}}})
    leased = pod("leased", gpu=1)
    leased["metadata"]["annotations"] = {CLAIM: "one"}
    namespace.create(leased)
    namespace.placed(1)
    labelled = {"namespace": SYSTEM_NAMESPACE, "labels": "gpu.scheduling/pod=leased"}
    assert namespace.api.list("leases", **labelled)
    namespace.delete("pods", "leased")
    namespace.api.until(lambda leases: not leases, "leases", what="the Lease's end", **labelled)


def write_what_a_queue_has(namespace: Namespace) -> None:
    """Let the scheduler write the status of a GpuQueue."""
    head = {"apiVersion": GPU_QUEUES.api_version, "kind": GPU_QUEUES.kind}
    namespace.api.apply({**head, "metadata": {"name": "rights"}, "spec": {}})
    namespace.api.until(lambda queues: "status" in queues["rights"], "gpuqueues", what="the status of the queue")
    namespace.api.delete("gpuqueue", "rights")


def write_what_is_left_of_a_quota(namespace: Namespace) -> None:
    """Let the scheduler write the status of a GpuQuota."""
    head = {"apiVersion": GPU_QUOTAS.api_version, "kind": GPU_QUOTAS.kind}
    namespace.create({**head, "metadata": {"name": "rights"}, "spec": {"total": {"maxPods": 1}}})

    namespace.until(lambda quotas: "status" in quotas["rights"], "gpuquotas", what="the status of the quota")
    namespace.delete("gpuquotas", "rights")


def preempt_a_pod(namespace: Namespace) -> None:
    """Let the scheduler evict a pod from the only card that one of higher priority may have."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rights"}}
    namespace.api.apply({**head, "value": 1000})
    for name, priority in (("preempted", ""), ("preempts", "rights")):
        sent = pod(name, node=NODE, gpu=1)
        sent["metadata"]["annotations"] = {USE_UUIDS: fleet.card(NODE, 1)}
        sent["spec"]["priorityClassName"] = priority
        namespace.create(sent)
        namespace.until(lambda pods, name=name: pods[name]["spec"].get("nodeName"), what=f"a node for {name}")
    assert not [each for each in namespace.pods() if each["metadata"]["name"] == "preempted"]
    namespace.delete("pods", "preempts")
    namespace.api.delete("priorityclass", "rights")


async def test_every_granted_right_is_used(
    tranche: Layout, namespace: Namespace, mig_node: str, tmp_path: Path
) -> None:
    """Every verb on every resource of every role was used."""
    granted = whole_run.granted()
    bind_where_hamis_plugin_serves(namespace, tmp_path)
    request_a_mig_instance(namespace, mig_node)
    end_a_pod_with_a_lease(namespace)
    bind_a_pod_of_an_application(namespace)
    wait_for_a_pod_group(namespace)
    write_what_a_queue_has(namespace)
    write_what_is_left_of_a_quota(namespace)
    preempt_a_pod(namespace)
    lose_a_card(namespace)
    bring_a_node(namespace)
    resize_a_pod(namespace)
    await read_the_pods_of_a_node(namespace)
    await bind_what_is_bound(namespace)
    await give_up_waiting_for_volumes(namespace)
    delete_leadership_and_lease(tranche)
    tamper_with_a_report(tranche)
    lose_the_authority(namespace)
    repeat_a_reason(namespace)
    query_the_namespaced_api(namespace)
    every = {right for right in frozenset().union(*granted.values()) if not str(right).endswith(NOT_SERVED)}

    def unused() -> set[rights.Right]:
        made = rights.requests(tranche.audit_log, ACCOUNTS)
        return {
            right
            for right in every
            if not any(right in granted[request.user] and right.covers(request) for request in made)
        }

    try:
        wait.until(lambda: not unused(), what="every right used", timeout_s=PATIENCE_S)
    except LabError:
        assert [str(right) for right in sorted(unused())] == []


@pytest.mark.parametrize("process", ["webhook", "scheduler", "agent"])
def test_only_the_webhook_reads_secrets_and_only_its_own(tranche: Layout, process: str) -> None:
    """No process reads others, in any namespace, one by one or by list."""
    api = client(tranche, user=f"{PREFIX}{process}")

    def may(verb: str, name: str = "", namespace: str = "") -> bool:
        return access.may(api, verb, "secrets", name=name, namespace=namespace)

    for verb in ("get", "list", "watch", "update", "patch", "delete", "deletecollection"):
        for where in ("", SYSTEM_NAMESPACE, "kube-system", "default"):
            assert not may(verb, namespace=where)
            assert not may(verb, "other", where)
            if where != SYSTEM_NAMESPACE or verb not in ("get", "patch"):
                assert not may(verb, SECRET, where)
    assert may("get", SECRET, SYSTEM_NAMESPACE) == (process == "webhook")
    assert may("create", namespace=SYSTEM_NAMESPACE) == (process == "webhook")
    assert not may("create", namespace="default")


def test_roles_have_no_wildcard() -> None:
    """A wildcard would grant unforeseen rights."""
    assert not [
        right for rights_ in whole_run.granted().values() for right in rights_ if "*" in f"{right.verb}{right.resource}"
    ]
