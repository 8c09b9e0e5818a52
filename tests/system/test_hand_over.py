"""Pods with claims of another driver, handed over to a kube-scheduler next to the loop; only the driver is pretended.

One pair of processes on nodes with eight cards and a few adapters each, of a driver that only has slices.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from allocation.quantity import milli
from lab import kubectl, manifests, wait
from lab.client import client
from lab.connection import RefusedError
from lab.errors import LabError
from lab.manifests import ROOT
from tests.support import namespaces, volumes
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import adapters, audit, pairs, rights, scheduler_api, truth
from tests.system.support.adapters import node_of, pod_with_adapter
from tests.system.support.pairs import HAND_OVER, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900 * repetitions(1, 4))]
NODES = ["n-0", "n-1", "n-2"]
ADAPTERS = 4
CPU_OF_A_NODE = 64
LONGEST_WAY_S = 0.05
"""A claim that has its device is followed by its Binding within this time."""
LATER = {"devicetaintrules", "podgroups", "workloads"}
"""What kube-scheduler reads in later releases than the lab's."""


@pytest.fixture(scope="module")
def logged_before(empty_cluster: Layout) -> int:
    """The size of the audit log of the modules before this one."""
    return empty_cluster.audit_log.stat().st_size


@pytest.fixture(scope="module")
def pair(uts_support: None, empty_cluster: Layout, logged_before: int) -> Pair:
    """The pair that runs."""
    pairs.up(empty_cluster, NODES, component=HAND_OVER)
    client(empty_cluster).apply(adapters.device_class(), *(adapters.slice_of(node, ADAPTERS) for node in NODES))
    made = Pair(empty_cluster, 0, component=HAND_OVER)
    made.start()
    return made


@pytest.fixture
def make(pair: Pair) -> Iterator[Callable[[str], Namespace]]:
    """A function that creates opted-in namespaces; they are empty before the next test begins."""
    made: list[Namespace] = []

    def make(name: str) -> Namespace:
        namespaces.create(pair.layout, name, {"gpu.scheduling/injection": "enabled"})
        made.append(Namespace(pair.layout, name))
        return made[-1]

    yield make
    for each in made:
        each.empty()
        each.api.delete_all("resourceclaims", namespace=each.name, timeout_s=PATIENCE_S)


def create(namespace: Namespace, *names: str, **limits: int | str) -> None:
    """Create pods with adapters, each with its claim."""
    for name in names:
        namespace.create(*pod_with_adapter(name, **limits))


def reason(pods: Mapping[str, Any], name: str) -> str:
    """Return why a pod waits, by its condition; empty if that says nothing yet, or it has a node."""
    conditions = pods[name]["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def claims(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """Return the claims of a namespace by name."""
    return {each["metadata"]["name"]: each for each in namespace.list("resourceclaims")}


def test_card_and_adapter_come_together(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """On one node, by one Binding; a pod for which no adapter is free waits, and follows. Others go to the loop."""
    namespace = make("adapters")
    count = ADAPTERS * len(NODES)
    create(namespace, *(f"p-{number}" for number in range(count)), gpu=1, gpumem=10_000)
    bound = {each["metadata"]["name"]: each for each in namespace.placed(count)}
    for name, claimed in claims(namespace).items():
        assert node_of(claimed) == bound[name]["spec"]["nodeName"]
        assert claimed["status"]["reservedFor"][0]["name"] == name
        assert bound[name]["spec"]["schedulerName"] == "tranche-claims"
        assert "gpu.scheduling/allocation" in bound[name]["metadata"]["annotations"]
    create(namespace, "late", gpu=1, gpumem=10_000)
    namespace.until(lambda pods: "cannot allocate all claims" in reason(pods, "late"), what="kube-scheduler's reason")
    namespace.create(pod("plain", gpu=1, gpumem=10_000))
    namespace.until(lambda pods: pods["plain"]["spec"].get("nodeName"), what="a node for a pod of the loop")
    namespace.delete("pod", "p-0", grace_s=1, wait=False)
    namespace.until(lambda pods: pods["late"]["spec"].get("nodeName"), what="the adapter that was given back")
    truth.recount(pair.layout)
    written = truth.bindings(audit.writes(pair.layout, namespace=namespace.name, user=audit.SCHEDULER))
    assert set(written.values()) == {1}


def test_bind_takes_no_pod_of_the_loop(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """A process on the host cannot have a pod bound by both schedulers."""
    namespace = make("loop")
    namespace.create(pod("waits", gpu=1, gpumem=999_999))
    namespace.unplaced("waits")
    uid = namespace.pod("waits")["metadata"]["uid"]
    body = {"PodName": "waits", "PodNamespace": namespace.name, "PodUID": uid, "Node": NODES[0]}
    error = scheduler_api.query(pair.layout, "/bind", body)["error"]
    assert "its schedulerName is tranche; ours are tranche-claims" in error


def test_refused_binding_gives_the_claim_back(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """Otherwise the adapter would tie the pod to the node that refuses it: it comes to another one within 15 s."""
    namespace = make("refused")
    prefer(namespace, NODES[0])
    refuse_bindings(namespace, NODES[0])
    began = time.monotonic()
    create(namespace, "p", gpu=1, gpumem=500)
    (bound,) = (each for each in namespace.placed(2) if each["metadata"]["name"] == "p")
    assert bound["spec"]["nodeName"] != NODES[0]
    assert time.monotonic() - began < 15.0
    assert node_of(claims(namespace)["p"]) == bound["spec"]["nodeName"]
    tried = audit.attempts(pair.layout, namespace=namespace.name, user=audit.SCHEDULER)
    bindings = [each for each in tried if each["objectRef"].get("subresource") == "binding"]
    assert [audit.code(each) for each in bindings if each["objectRef"]["name"] == "p"] == [422, 201]
    log.info("on another node after %.1f s", time.monotonic() - began)


def prefer(namespace: Namespace, node: str) -> None:
    """Let a node be the best for a small pod: one that nearly fills a card of it runs there."""
    namespace.create(pod("full", node=node, gpu=1, gpumem=39_000))
    namespace.placed(1)


def refuse_bindings(namespace: Namespace, node: str) -> None:
    """Let the API server refuse Bindings of pods `p` of a namespace to a node, and wait until it does."""
    name = {"name": "refuse-bindings"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    refused = f"request.namespace == '{namespace.name}' && request.name == 'p' && object.target.name == '{node}'"
    api = "admissionregistration.k8s.io/v1"
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": f"!({refused})"}]}
    binding = {"policyName": name["name"], "validationActions": ["Deny"]}
    namespace.api.apply(
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": policy},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name, "spec": binding},
    )
    target = {"target": {"kind": "Node", "name": node}, "metadata": {"name": "p"}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/p/binding?dryRun=All"

    def is_active() -> bool:
        try:
            manifest = json.dumps({"apiVersion": "v1", "kind": "Binding", **target})
            namespace.kubectl("create", "--raw", path, "-f", "-", stdin=manifest)
        except LabError as error:
            return name["name"] in str(error)
        return False

    wait.until(is_active, what="the policy", timeout_s=PATIENCE_S)


def test_loop_and_kube_scheduler_share_full_nodes(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """Pods of both come and go, also while they wait: no card, no CPU and no adapter is given twice."""
    namespace, chance = make("mixed"), random.Random(7)  # noqa: S311 -- no secret
    created = 0
    for _ in range(4):
        for _ in range(15):
            created += 1
            limits = {"gpu": 1, "gpumem": chance.choice((10_000, 20_000, 39_000))}
            made = [pod(f"p-{created}", **limits)] if created % 2 else [*pod_with_adapter(f"p-{created}", **limits)]
            made[-1]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(chance.choice((2, 8, 24)))}
            namespace.create(*made)
        check(namespace)
        for name in truth.pods(pair.layout, namespace.name):
            if chance.random() < 0.5:
                end(namespace, name)
        check(namespace)
    namespace.until(lambda pods: is_settled(pair, pods), what="places for all that fit")
    check(namespace)


def end(namespace: Namespace, name: str) -> None:
    """Delete a pod; a policy refuses that for one that gets its node at this moment."""
    try:
        namespace.delete("pod", name, grace_s=1, wait=False)
    except RefusedError as error:
        if "would be gone before its containers have ended" not in error.message:
            raise


def is_settled(pair: Pair, pods: Mapping[str, Any]) -> bool:
    """Whether each pod that waits says why."""
    waiting = [name for name, each in pods.items() if not each["spec"].get("nodeName")]
    return all(reason(pods, name) for name in waiting)


def check(namespace: Namespace) -> None:
    """Compare what the pods have with what there is; the API server refuses nothing of this itself."""
    truth.recount(namespace.layout)
    cpu: Counter[str] = Counter()
    for each in namespace.pods():
        node, (container,) = each["spec"].get("nodeName"), each["spec"]["containers"]
        if node and not each["metadata"].get("deletionTimestamp"):
            cpu[node] += milli(container["resources"]["requests"]["cpu"])
    assert max(cpu.values(), default=0) <= CPU_OF_A_NODE * 1000
    used = Counter(
        (result["pool"], result["device"])
        for each in claims(namespace).values()
        for result in (each.get("status", {}).get("allocation") or {"devices": {"results": ()}})["devices"]["results"]
    )
    assert max(used.values(), default=0) <= 1


def test_kube_scheduler_binds_the_volumes_of_its_pods(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """A volume that is there is reserved for its claim; for one that has to be made the claim gets the node."""
    bind_volumes(make("volumes"))
    truth.recount(pair.layout)


def bind_volumes(namespace: Namespace) -> None:
    """Create pods with volumes, and wait until these are bound, or to be made."""
    provisioners = {"there": "kubernetes.io/no-provisioner", "made": "example.com/none"}
    namespace.api.apply(
        *(volumes.storage_class(name, each) for name, each in provisioners.items()),
        volumes.local_volume(f"{namespace.name}-{NODES[1]}", node=NODES[1], storage_class="there"),
    )
    for name in ("there", "made"):
        claimed, made = pod_with_adapter(name, gpu=1, gpumem=1000)
        made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        namespace.create(claimed, volumes.claim(name, storage_class=name), made)
    namespace.until(lambda pods: pods["there"]["spec"].get("nodeName") == NODES[1], what="the node of the volume")

    def has_node(volume_claims: Mapping[str, Any]) -> bool:
        return "volume.kubernetes.io/selected-node" in volume_claims["made"]["metadata"].get("annotations", {})

    namespace.until(has_node, "persistentvolumeclaims", what="the node of the volume that is to be made")


def test_loop_goes_on_without_kube_scheduler(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """Killed in the middle; after a while pods that wait say so, and what waited is placed when it is back."""
    namespace = make("alone")
    names = [f"p-{number}" for number in range(8)]
    create(namespace, *names, gpu=1, gpumem=1000)
    kill(pair.kube_scheduler)
    create(namespace, "later", "deleted", gpu=1, gpumem=1000)
    namespace.create(pod("plain", gpu=1, gpumem=1000))
    namespace.until(lambda pods: pods["plain"]["spec"].get("nodeName"), what="a pod of the loop")
    namespace.until(lambda pods: "KubeSchedulerSilent" in reason(pods, "later"), what="the reason")
    assert sample(pair, "tranche_kube_scheduler_up") == 0
    assert sample(pair, "tranche_scheduler_handed_over_pods") >= 2
    explained = scheduler_api.query(pair.layout, f"/api/explain/{namespace.name}/later")
    assert "no kube-scheduler places pods with resourceClaims" in explained["answer"]
    namespace.delete("pod", "deleted", grace_s=0)
    pair.start_kube_scheduler()
    namespace.placed(len(names) + 2)
    wait.until(lambda: sample(pair, "tranche_kube_scheduler_up") == 1, what="the metric", timeout_s=PATIENCE_S)
    wait.until(lambda: sample(pair, "tranche_scheduler_handed_over_pods") == 0, what="none", timeout_s=PATIENCE_S)
    truth.recount(pair.layout)


def test_leader_changes_while_pods_are_bound(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """Each pod gets its node once, when its leader is killed after its claim has devices: alone, or the pair of both.

    Then the second pair leads, and places pods of the loop as well.
    """
    namespace = make("leaders")
    create_until_one_has_an_adapter(namespace, "first")
    kill(pair.extender)
    pair.start_extender()
    second = Pair(pair.layout, 1, component=HAND_OVER)
    second.start()
    create_until_one_has_an_adapter(namespace, "second")
    pair.kill()
    namespace.create(pod("plain", gpu=1, gpumem=1000))
    placed = namespace.placed(2 * ADAPTERS + 1)
    allocated = {name: node_of(each) for name, each in claims(namespace).items()}
    assert allocated == {
        each["metadata"]["name"]: each["spec"]["nodeName"] for each in placed if each["metadata"]["name"] != "plain"
    }
    truth.recount(pair.layout)
    accepted = truth.bindings(audit.writes(pair.layout, namespace=namespace.name))
    assert set(accepted.values()) == {1}
    second.kill()
    pair.start()


def test_extender_is_killed_between_claim_and_binding(pair: Pair, make: Callable[[str], Namespace]) -> None:
    """Again and again, at random moments after a claim has its device: each pod gets its node once, that of its claim.

    The moments are those of seeds 0, 1, …; the deep suite has fifty.
    """
    namespace = make("killed")
    for seed in range(repetitions(1, 50)):
        create_until_one_has_an_adapter(namespace, f"seed-{seed}")
        time.sleep(random.Random(seed).uniform(0, LONGEST_WAY_S))  # noqa: S311 -- no secret
        kill(pair.extender)
        pair.start_extender()
        placed = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in namespace.placed(ADAPTERS)}
        assert {name: node_of(each) for name, each in claims(namespace).items()} == placed, f"seed {seed}"
        truth.recount(pair.layout)
        namespace.empty()
        namespace.api.delete_all("resourceclaims", namespace=namespace.name, timeout_s=PATIENCE_S)
    accepted = truth.bindings(audit.writes(pair.layout, namespace=namespace.name))
    assert set(accepted.values()) == {1}


def create_until_one_has_an_adapter(namespace: Namespace, prefix: str) -> None:
    """Create pods, and wait until the claim of one of them is allocated."""
    create(namespace, *(f"{prefix}-{number}" for number in range(ADAPTERS)), gpu=1, gpumem=1000)

    def is_allocated() -> bool:
        return any(node_of(each) for name, each in claims(namespace).items() if name.startswith(prefix))

    wait.until(is_allocated, what="a claim", timeout_s=PATIENCE_S)


def test_every_right_is_used_and_none_is_missing(
    pair: Pair, make: Callable[[str], Namespace], logged_before: int
) -> None:
    """The component grants what kube-scheduler requests here, and nothing else but for later releases."""
    bind_volumes(make("volumes-of-rights"))
    refused = make("refused-rights")
    prefer(refused, NODES[0])
    refuse_bindings(refused, NODES[0])
    create(refused, "p", gpu=1, gpumem=500)
    refused.placed(2)
    objects = [
        each
        for text in (
            kubectl.run(pair.layout, "kustomize", str(ROOT / "base")),
            (ROOT / HAND_OVER / "rbac.yaml").read_text(),
        )
        for each in manifests.read(text)
    ]
    granted = rights.granted(objects, [audit.SCHEDULER])[audit.SCHEDULER]
    made = rights.requests(pair.layout.audit_log, [audit.SCHEDULER], since=logged_before)
    added = {each for each in granted if each.role in ("tranche-claims-scheduler", "tranche-kube-scheduler")}
    unused = {each for each in added if not any(each.covers(request) for request in made)}
    assert [str(each) for each in unused if each.resource.partition(".")[0] not in LATER] == []
    assert {request for request in made if request.decision != "allow"} == set()


def kill(daemon: Any) -> None:
    """Kill a process."""
    assert daemon.pid is not None
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.stop()


def sample(pair: Pair, name: str) -> float:
    """Return a metric of a pair."""
    (found,) = scheduler_api.metrics(pair.url)[name]
    return found.value
