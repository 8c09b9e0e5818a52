"""Roles grant exactly what the processes use: the audit log of the run is compared with the manifests.

Some rights are used only after a failure, so these tests cause it: the Leadership is deleted, a node's report is
tampered with, the webhook's Secret is lost and restored from a backup, a pod waits twice for the same reason, a Binding
finds a pod that already has a node, volumes are not bound in time, HAMi's plugin serves a node, GPUBindings, GpuQueues
and GpuQuotas count, and a pod is preempted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from allocation.names import CLAIM, SYSTEM_NAMESPACE, USE_UUIDS
from allocation.request import PodRequest
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import GPU_CLAIMS, GPU_QUEUES, GPU_QUOTAS
from lab import components, fleet, kubeconfig, kubectl, wait
from lab.errors import LabError
from lab.manifests import ROOT
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
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import gpubindings, hami_nodes, missing_devices, rights, tenants
from tests.system.test_volumes import claim, local_volume, storage_class

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-"
FLEET_AGENT = "system:serviceaccount:tranche-lab:fleet-agent"  # the lab's account with the agent's roles
ACCOUNTS = (f"{PREFIX}webhook", f"{PREFIX}scheduler", f"{PREFIX}agent", FLEET_AGENT)
NODE = "gpu-sim-2"


@pytest.fixture(scope="module")
def granted(tranche: Layout, tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[rights.Right]]:
    """The rights that the manifests grant to each account, with nodes of HAMi's plugin and GPUBindings."""
    objects = [
        each
        for folder in ("base", "lab")
        for each in yaml.safe_load_all(kubectl.run(tranche, "kustomize", str(ROOT / folder)))
    ]
    objects += hami_nodes.component(tranche, tmp_path_factory.mktemp("component"))
    objects += [*gpubindings.component(), *missing_devices.component()]
    return rights.granted(objects, ACCOUNTS)


def system(layout: Layout, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as administrator in the system namespace."""
    return kubectl.run(layout, "-n", SYSTEM_NAMESPACE, *arguments, stdin=stdin)


def exists(layout: Layout, *what: str) -> bool:
    """Return whether an object exists in the system namespace."""
    return bool(system(layout, "get", *what, "--ignore-not-found", "-o", "name"))


def delete_leadership_and_lease(layout: Layout) -> None:
    """Delete the Leadership, which the leader recreates, then the Lease, which starts another term."""
    system(layout, "delete", "leadership", "tranche-scheduler")
    wait.until(lambda: exists(layout, "leadership", "tranche-scheduler"), what="Leadership", timeout_s=PATIENCE_S)

    def epoch() -> int:
        spec = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "leadership", "tranche-scheduler")["spec"]
        return int(spec["epoch"])

    before = epoch()
    system(layout, "delete", "lease", "tranche-scheduler")
    wait.until(lambda: epoch() > before, what="a new term", timeout_s=PATIENCE_S)


def tamper_with_a_report(layout: Layout) -> None:
    """Change a node's annotation and delete its report and its heartbeat; the agent restores all of them."""
    kubectl.run(layout, "annotate", "node", NODE, "hami.io/node-nvidia-register=[]", "--overwrite")
    kubectl.run(layout, "delete", "gpunodestatus", NODE)
    system(layout, "delete", "lease", f"agent-{NODE}")

    def is_whole() -> bool:
        text = kubectl.run(layout, "get", "gpunodestatus", NODE, "--ignore-not-found", "-o", "json")
        node = kubectl.get(layout, "node", NODE)
        return (
            bool(text)
            and json.loads(text).get("status", {}).get("total") == 8
            and node["metadata"]["annotations"]["hami.io/node-nvidia-register"] != "[]"
            and exists(layout, "lease", f"agent-{NODE}")
        )

    wait.until(is_whole, what=f"the report of {NODE}", timeout_s=PATIENCE_S, daemons=[Daemon(layout, "agent")])


def lose_the_authority(layout: Layout) -> None:
    """Delete the webhook's Secret, which is recreated, then restore the old one, which keeps the newer authority."""
    name = "tranche-webhook-ca"
    backup = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", name)
    backup["metadata"] = {"name": name, "labels": backup["metadata"].get("labels", {})}

    def is_another() -> bool:
        if not exists(layout, "secret", name):
            return False
        now = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", name)
        return bool(now["data"] != backup["data"])

    daemon = Daemon(layout, "webhook")
    daemon.stop()
    system(layout, "delete", "secret", name)
    components.start(layout, components.component(layout, "webhook"))
    wait.until(is_another, what="a new authority", timeout_s=PATIENCE_S, daemons=[daemon])
    system(layout, "replace", "-f", "-", stdin=json.dumps(backup))


def repeat_a_reason(namespace: Namespace) -> None:
    """Let a pod wait for one reason, another, and the first again, so that the first event is counted twice."""
    namespace.create(pod("waits", node=NODE, gpu=1, gpumem=999999))
    first = namespace.unplaced("waits")
    try:
        kubectl.run(namespace.layout, "cordon", NODE)
        wait.until(lambda: namespace.unplaced("waits") != first, what="another reason", timeout_s=PATIENCE_S)
    finally:
        kubectl.run(namespace.layout, "uncordon", NODE)
    wait.until(lambda: namespace.unplaced("waits") == first, what="the first reason again", timeout_s=PATIENCE_S)


def request_a_mig_instance(namespace: Namespace, node: str) -> None:
    """Create a pod for which the agent must create a MIG instance first."""
    manifest = pod("sliced", node=node, gpu=1, gpumem=10000)
    manifest["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": f"GPU-{node}-1"}
    namespace.create(manifest)
    namespace.placed(1)
    namespace.kubectl("delete", "pod", "sliced")


async def bind_what_is_bound(namespace: Namespace) -> None:
    """As the scheduler, bind a pod that is already bound, so that it reads the pod."""
    namespace.create(pod("bound", node="gpu-sim-1"))
    (bound,) = namespace.placed(1)
    identity = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler"
    )
    spec = kubectl.get(namespace.layout, "-n", SYSTEM_NAMESPACE, "leadership", "tranche-scheduler")["spec"]
    async with connect(kubeconfig=str(identity)) as connection:
        binder = Binder(Api(connection), token=f"{spec['epoch']}/{spec['identity']}", timeout_seconds=10)
        decision = Scheduled(node="gpu-sim-0", request=PodRequest(()), allocation=None, note="")
        result = await binder.bind(msgspec.convert(bound, Pod), decision)
    assert result.outcome is Outcome.TAKEN
    namespace.kubectl("delete", "pod", "bound", "--wait=true")


async def give_up_waiting_for_volumes(namespace: Namespace) -> None:
    """As the scheduler, reserve a volume and select a node, and take both back because nothing is provisioned."""
    layout = namespace.layout
    classes = [storage_class("given-back", "test.example/none"), storage_class("reserved", "test.example/none")]
    name, node = f"pv-{namespace.name}", "gpu-sim-1"
    kubectl.apply(layout, *classes, local_volume(name, node=node, storage_class="reserved"))
    namespace.create(
        claim("selects", storage_class="given-back"),
        claim("reserves", storage_class="reserved"),
        pod("waits-for-volumes"),
    )
    shown = {each: ClaimKey(namespace.name, each) for each in ("selects", "reserves")}
    claims = {
        key: msgspec.convert(kubectl.get(layout, "-n", namespace.name, "pvc", each), Claim)
        for each, key in shown.items()
    }
    volume = msgspec.convert(kubectl.get(layout, "pv", name), PersistentVolume)
    waits = msgspec.convert(namespace.pod("waits-for-volumes"), Pod)
    bindings = VolumeBindings((Match(shown["reserves"], name),), (shown["selects"],))
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")
    async with connect(kubeconfig=str(identity)) as connection:
        binder = VolumeBinder(
            Api(connection),
            shown=Shown(
                claim=claims.get,
                volume=lambda _: volume,
                node=lambda _: msgspec.convert(kubectl.get(layout, "node", node), Node),
                pod=lambda *_: waits,
                migrated=lambda _: (),
            ),
            metrics=Metrics(),
            timeout_seconds=1,
        )
        result = await binder.bind(waits, Scheduled(node, PodRequest(()), None, "", volumes=bindings))
    assert result is not None
    assert result.outcome is Outcome.REFUSED
    namespace.kubectl("delete", "pod", "waits-for-volumes", "--wait=true")
    namespace.kubectl("delete", "pvc", "--all")
    kubectl.run(layout, "delete", f"pv/{name}", "storageclass/given-back", "storageclass/reserved")


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
        namespace.kubectl("delete", "pod", "locks", "--wait=true")


def bind_a_pod_of_an_application(namespace: Namespace) -> None:
    """Place a pod on the card that a GPUBinding gives to its application."""
    with gpubindings.applied(namespace.layout, "labelled"):
        kubectl.apply(namespace.layout, gpubindings.binding("one", fleet.card(NODE, 0), "app"))
        namespace.create(pod("bound-card", labels=gpubindings.labels("app", "alice"), gpu=1, gpumem=100))
        namespace.placed(1)
        namespace.kubectl("delete", "pod", "bound-card", "--wait=true")


def lose_a_card(namespace: Namespace) -> None:
    """Have a pod deleted whose card its node does not have any more."""
    node = "gpu-losing-1"
    with missing_devices.losing_node(namespace.layout, node):
        missing_devices.report(namespace.layout, node, {"index": 0}, {"index": 1})
        namespace.create(*(pod(f"on-card-{number}", node=node, gpu=1) for number in range(2)))
        namespace.placed(2)
        missing_devices.report(namespace.layout, node, {"index": 0})
        wait.until(lambda: len(namespace.pods()) == 1, what="the pod's end", timeout_s=PATIENCE_S)
        namespace.empty()


def end_a_pod_with_a_lease(namespace: Namespace) -> None:
    """Have the Lease of a card created and deleted."""
    head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind}
    namespace.create({**head, "metadata": {"name": "one"}, "spec": {"devices": {"count": 1}}})
    leased = pod("leased", gpu=1)
    leased["metadata"]["annotations"] = {CLAIM: "one"}
    namespace.create(leased)
    namespace.placed(1)
    labelled = ("lease", "-l", "gpu.scheduling/pod=leased")
    assert exists(namespace.layout, *labelled)
    namespace.kubectl("delete", "pod", "leased", "--wait=true")
    wait.until(lambda: not exists(namespace.layout, *labelled), what="the Lease's end", timeout_s=PATIENCE_S)


def write_what_a_queue_has(namespace: Namespace) -> None:
    """Have the status of a GpuQueue written."""
    head = {"apiVersion": GPU_QUEUES.api_version, "kind": GPU_QUEUES.kind}
    kubectl.apply(namespace.layout, {**head, "metadata": {"name": "rights"}, "spec": {}})

    def is_written() -> bool:
        return "status" in kubectl.get(namespace.layout, "gpuqueue", "rights")

    wait.until(is_written, what="the status of the queue", timeout_s=PATIENCE_S)
    kubectl.run(namespace.layout, "delete", "gpuqueue", "rights")


def write_what_is_left_of_a_quota(namespace: Namespace) -> None:
    """Have the status of a GpuQuota written."""
    head = {"apiVersion": GPU_QUOTAS.api_version, "kind": GPU_QUOTAS.kind}
    namespace.create({**head, "metadata": {"name": "rights"}, "spec": {"total": {"maxPods": 1}}})

    def is_written() -> bool:
        return "status" in kubectl.get(namespace.layout, "-n", namespace.name, "gpuquota", "rights")

    wait.until(is_written, what="the status of the quota", timeout_s=PATIENCE_S)
    namespace.kubectl("delete", "gpuquota", "rights")


def preempt_a_pod(namespace: Namespace) -> None:
    """Have a pod evicted from the only card that one of higher priority may have."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rights"}}
    kubectl.apply(namespace.layout, {**head, "value": 1000})
    for name, priority in (("preempted", ""), ("preempts", "rights")):
        sent = pod(name, node=NODE, gpu=1)
        sent["metadata"]["annotations"] = {USE_UUIDS: fleet.card(NODE, 1)}
        sent["spec"]["priorityClassName"] = priority
        namespace.create(sent)
        wait.until(
            lambda name=name: namespace.pod(name)["spec"].get("nodeName"),  # type: ignore[misc]
            what=f"a node for {name}",
            timeout_s=PATIENCE_S,
        )
    assert not [each for each in namespace.pods() if each["metadata"]["name"] == "preempted"]
    namespace.kubectl("delete", "pod", "preempts", "--wait=true")
    kubectl.run(namespace.layout, "delete", "priorityclass", "rights")


async def test_every_granted_right_is_used(
    tranche: Layout,
    namespace: Namespace,
    mig_node: str,
    granted: dict[str, frozenset[rights.Right]],
    tmp_path: Path,
) -> None:
    """Every verb on every resource of every role was used in this run."""
    bind_where_hamis_plugin_serves(namespace, tmp_path)
    request_a_mig_instance(namespace, mig_node)
    end_a_pod_with_a_lease(namespace)
    bind_a_pod_of_an_application(namespace)
    write_what_a_queue_has(namespace)
    write_what_is_left_of_a_quota(namespace)
    preempt_a_pod(namespace)
    lose_a_card(namespace)
    await bind_what_is_bound(namespace)
    await give_up_waiting_for_volumes(namespace)
    delete_leadership_and_lease(tranche)
    tamper_with_a_report(tranche)
    lose_the_authority(tranche)
    repeat_a_reason(namespace)
    query_the_namespaced_api(namespace)
    every = frozenset().union(*granted.values())

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


def test_every_request_is_covered_by_a_rule(
    tranche: Layout, layout: Layout, granted: dict[str, frozenset[rights.Right]]
) -> None:
    """The API server allowed every request of the processes in this run, and the manifests cover it."""
    logs = [each.audit_log for each in (tranche, layout) if each.audit_log.exists()]
    made = {request for log in logs for request in rights.requests(log, ACCOUNTS)}
    assert made
    assert [
        request for request in sorted(made) if not any(right.covers(request) for right in granted[request.user])
    ] == []
    # An API server that has just started forbids everything until it has read the roles. A request that it forbade
    # then may have no successor, so it is enough that a right which covers the request was used with success.
    allowed = [request for request in made if request.decision == "allow"]
    assert [
        request
        for request in sorted(made)
        if request.decision != "allow"
        and not any(
            right.covers(request) and any(right.covers(other) for other in allowed if other.user == request.user)
            for right in granted[request.user]
        )
    ] == []


@pytest.mark.parametrize("process", ["webhook", "scheduler", "agent"])
def test_only_the_webhook_reads_secrets_and_only_its_own(tranche: Layout, process: str) -> None:
    """No process reads others, in any namespace, one by one or by list."""

    def may(verb: str, what: str, *where: str) -> bool:
        try:
            output = kubectl.run(tranche, "auth", "can-i", verb, what, *where, "--as", f"{PREFIX}{process}")
        except LabError:
            return False
        return output.strip() == "yes"

    own = "secrets/tranche-webhook-ca"
    for verb in ("get", "list", "watch", "update", "patch", "delete", "deletecollection"):
        for where in (("-A",), ("-n", SYSTEM_NAMESPACE), ("-n", "kube-system"), ("-n", "default")):
            assert not may(verb, "secrets", *where)
            assert not may(verb, "secrets/other", *where)
            if where[1:] != (SYSTEM_NAMESPACE,) or verb not in ("get", "patch"):
                assert not may(verb, own, *where)
    assert may("get", own, "-n", SYSTEM_NAMESPACE) == (process == "webhook")
    assert may("create", "secrets", "-n", SYSTEM_NAMESPACE) == (process == "webhook")
    assert not may("create", "secrets", "-n", "default")


def test_roles_have_no_wildcard(granted: dict[str, frozenset[rights.Right]]) -> None:
    """A wildcard would grant unforeseen rights."""
    assert not [right for rights_ in granted.values() for right in rights_ if "*" in f"{right.verb}{right.resource}"]
