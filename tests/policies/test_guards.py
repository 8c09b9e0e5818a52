"""The API server itself refuses pods that a user with the role `edit` may not create, or not so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import LIMITS
from allocation.settings import ResourceNames
from allocation.variables import TABLE, Ruling
from lab import wait
from lab.client import client
from tests.policies.support.guards import CLAIM, GATES, IN, KEYS, OPERATOR, OUT, RESOURCES, RESREQ, TENANT, pod
from tests.policies.support.pods import prepared
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.policies.support.guards import Guarded

pytestmark = pytest.mark.apiserver
NODE_GIVEN = "which only a user who may bind pods may choose"
UNPREPARED = "names GpuClaim single-gpu, but the admission webhook tranche-webhook did not give it the GPU resources"


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize(
    "opt_out",
    [{}, {"labels": {"gpu.scheduling/injection": "disabled"}}, {"labels": {"hami.io/webhook": "ignore"}}],
    ids=["schedulerName", "injection", "ignore"],
)
def test_node_name_requires_the_right_to_bind(guarded: Guarded, resource: str, opt_out: dict[str, Any]) -> None:
    """A tenant who bypasses admission cannot put a GPU pod on a node, and so cannot close the node."""
    words = guarded.refusal(pod({resource: 1}, node="n1", **opt_out))
    assert NODE_GIVEN in words
    assert "spec.nodeName is n1" in words
    assert guarded.refusal(pod({resource: 1}, **opt_out)) == ""
    assert guarded.refusal(pod({"cpu": 1}, node="n1", **opt_out)) == ""
    assert guarded.refusal(pod({resource: 1}, node="n1", **opt_out), user="") == ""


@pytest.mark.parametrize("resource", RESOURCES)
def test_node_name_requires_the_right_to_bind_where_nobody_opted_in(guarded: Guarded, resource: str) -> None:
    """Such a pod would close its node for all others. NVIDIA's operator tests nodes by pods like that."""
    sent = pod({resource: 1}, node="n1")
    assert NODE_GIVEN in guarded.refusal(sent, namespace=OUT)
    assert guarded.refusal(pod({resource: 1}), namespace=OUT) == ""
    assert guarded.refusal(pod({"cpu": 1}, node="n1"), namespace=OUT) == ""
    assert guarded.refusal(sent, namespace=OUT, user="") == ""
    assert guarded.refusal(sent, namespace=OPERATOR) == ""


@pytest.mark.parametrize("resource", RESOURCES[1:])
def test_count_of_zero_does_not_hide_a_request(guarded: Guarded, resource: str) -> None:
    """With another GPU resource it is a GPU request; alone, or with amounts of 0, it is not."""
    assert NODE_GIVEN in guarded.refusal(pod({RESOURCES[0]: 0, resource: 10}, node="n1"))
    assert guarded.refusal(pod({RESOURCES[0]: 0, resource: 0}, node="n1")) == ""
    assert guarded.refusal(pod({RESOURCES[0]: 0, "nvidia.com/priority": 7}, node="n1")) == ""


def test_prepared_pod_with_a_count_of_zero_is_refused(guarded: Guarded) -> None:
    """A user can write the pod by hand as if the webhook had prepared it."""
    sent = prepared()
    sent["spec"]["containers"][0]["resources"]["limits"][RESOURCES[0]] = "0"
    assert "asks for GPU memory or cores with nvidia.com/gpu: 0" in guarded.refusal(sent)


def test_tenant_does_not_inherit_a_controllers_right_to_bind(guarded: Guarded) -> None:
    """The DaemonSet controller may bind, but it creates pods from templates of tenants."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    sent = pod({RESOURCES[0]: 1}, node="n1", ownerReferences=[owner])
    controller = "system:serviceaccount:kube-system:daemon-set-controller"
    assert NODE_GIVEN in guarded.refusal(sent, user=controller)
    del sent["metadata"]["ownerReferences"]
    assert guarded.refusal(sent, user=controller) == ""


def test_mirrors_of_static_pods_are_admitted(guarded: Guarded) -> None:
    """The kubelet runs them anyway, and a visible one at least closes its node."""
    client(guarded.layout).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    node = client(guarded.layout).get("node", "n1")
    try:
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}
        sent = pod(
            {RESOURCES[0]: 1},
            node="n1",
            annotations={"kubernetes.io/config.mirror": "x", KEYS[0]: "nvidia.com/gpu=all", RESREQ: "gpus"},
            ownerReferences=[owner],
        )
        sent["spec"]["schedulerName"] = "default-scheduler"
        kubelet = client(guarded.layout, user="system:node:n1", groups=("system:nodes", "system:masters"))
        kubelet.create(sent, namespace=IN, dry_run=True)
    finally:
        client(guarded.layout).delete("node", "n1")


@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 1}], ids=["plain", "gpu"])
def test_request_by_a_mount_is_refused_in_a_pod_that_opts_out(guarded: Guarded, limits: dict[str, Any]) -> None:
    """NVIDIA's runtime reads the mounts of each container, whatever the labels of its pod say."""
    sent = pod(limits, labels={"gpu.scheduling/injection": "disabled"})
    sent["spec"]["volumes"] = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
    mount = {"name": "null", "mountPath": "/var/run/nvidia-container-devices/all"}
    sent["spec"]["containers"][0]["volumeMounts"] = [mount]
    assert "mounts a volume below /var/run/nvidia-container-devices" in guarded.refusal(sent)
    assert guarded.refusal(sent, namespace=OUT) == ""


def claim_pod(scheduler: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod that names a GpuClaim and requests nothing itself."""
    sent = pod(annotations={CLAIM: "single-gpu"}, **metadata)
    sent["spec"]["schedulerName"] = scheduler
    sent["spec"]["schedulingGates"] = GATES
    return sent


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "tranche", "tranche-claims"])
def test_claim_pod_that_the_webhook_did_not_see_is_refused(guarded: Guarded, scheduler: str) -> None:
    """Without GPU resources it would start without a card, or wait forever; the webhook does not run here."""
    injected = {"labels": {"gpu.scheduling/injection": "enabled"}}
    assert UNPREPARED in guarded.refusal(claim_pod(scheduler))
    assert UNPREPARED in guarded.refusal(claim_pod(scheduler), user="")
    assert UNPREPARED in guarded.refusal(claim_pod(scheduler, **injected), namespace=OUT)
    assert guarded.refusal(claim_pod(scheduler), namespace=OUT) == ""


@pytest.mark.parametrize("label", [{"gpu.scheduling/injection": "disabled"}, {"hami.io/webhook": "ignore"}])
def test_claim_pod_of_others_is_admitted(guarded: Guarded, label: dict[str, str]) -> None:
    """A pod that opted out, or that names another scheduler, is not prepared by the webhook either."""
    assert guarded.refusal(claim_pod(labels=label)) == ""
    assert guarded.refusal(claim_pod("batch")) == ""


def test_prepared_claim_pod_is_admitted(guarded: Guarded) -> None:
    """The webhook gave it the resources of its claim."""
    sent = prepared()
    sent["metadata"]["annotations"][CLAIM] = "single-gpu"
    assert guarded.refusal(sent) == ""


def test_claim_of_a_pod_never_changes(guarded: Guarded) -> None:
    """Otherwise another claim, or none, would decide about the resources that admission wrote."""
    for name, own in (("claims", {CLAIM: "single-gpu"}), ("claims-nothing", {})):
        sent = prepared()
        sent["metadata"] = {"name": name, "annotations": {**sent["metadata"]["annotations"], **own}}
        guarded.api().create(sent, namespace=IN)
    for user in ("", TENANT):
        for name, value in (("claims", "other"), ("claims", None), ("claims-nothing", "other")):
            why = guarded.annotation_refusal(name, CLAIM, value, user=user)
            assert f"annotation {CLAIM} says which GPUs the pod has, or who pays" in why
        assert guarded.annotation_refusal("claims", "mine", user or "1", user=user) == ""


def test_limits_of_a_pod_never_change(guarded: Guarded) -> None:
    """Otherwise a pod that waits would get another limit than admission and its namespace's quotas have checked."""
    for name, own in (("limited", {LIMITS: '{"main":{"gpucores":60}}'}), ("unlimited", {})):
        sent = prepared()
        sent["metadata"] = {"name": name, "annotations": {**sent["metadata"]["annotations"], **own}}
        guarded.api().create(sent, namespace=IN)
    for name, value in (("limited", '{"main":{"gpucores":90}}'), ("limited", None), ("unlimited", "{}")):
        assert f"annotation {LIMITS} says which GPUs the pod has" in guarded.annotation_refusal(name, LIMITS, value)


@pytest.mark.parametrize("name", [row.name for row in TABLE if row.ruling in (Ruling.REMOVED, Ruling.BY_ISOLATION)])
def test_policy_refuses_a_variable_that_weakens_a_limit(guarded: Guarded, name: str) -> None:
    """In containers with and without the GPU; the message names the container and the variable."""
    entry = {"name": name.replace("*", "LIMIT"), "value": "1"}
    for container in (0, 1):
        sent = prepared(containers=2)
        assert guarded.refusal(sent) == ""
        sent["spec"]["containers"][container]["env"].append(entry)
        assert f"container c{container} sets {entry['name']}" in guarded.refusal(sent)


@pytest.mark.parametrize("capability", ["SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "ALL"])
def test_container_with_sys_admin_is_refused(guarded: Guarded, capability: str) -> None:
    """Like privileged containers, these are refused in GPU pods and admitted in other pods."""
    context = {"capabilities": {"add": ["NET_ADMIN", capability]}}
    sent = prepared(containers=2)
    sent["spec"]["containers"][1]["securityContext"] = context
    assert "container c1 is privileged, or adds capability SYS_ADMIN" in guarded.refusal(sent)
    sent["spec"]["containers"][1]["securityContext"] = {"capabilities": {"add": ["SYS_PTRACE"], "drop": ["ALL"]}}
    assert guarded.refusal(sent) == ""
    plain = pod()
    plain["spec"]["containers"][0]["securityContext"] = context
    assert guarded.refusal(plain) == ""


@pytest.fixture
def no_gpu(server: Layout, plain_namespace: str) -> Iterator[str]:
    """A namespace with a ResourceQuota of 0 for each GPU resource."""
    hard = {f"requests.{name}": 0 for name in ResourceNames().gpu_resources()}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-gpu"}, "spec": {"hard": hard}}
    client(server).create(quota, namespace=plain_namespace)
    yield plain_namespace
    client(server).delete("resourcequota", "no-gpu", namespace=plain_namespace)


def test_quota_of_zero_keeps_preassigned_pods_out(server: Layout, no_gpu: str) -> None:
    """An administrator can close a namespace to GPU pods, even to those of users who may bind."""

    def is_refused(limits: dict[str, int]) -> bool:
        sent = pod(limits, node="n1")
        return "exceeded quota" in refusal(lambda: client(server).create(sent, namespace=no_gpu, dry_run=True))

    wait.until(lambda: is_refused({RESOURCES[0]: 1}), what="the quota in force", timeout_s=PATIENCE_S)
    for resource in RESOURCES[1:]:
        assert is_refused({resource: 10})
        assert is_refused({RESOURCES[0]: 0, resource: 10})
