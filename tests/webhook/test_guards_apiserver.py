"""The API server itself refuses what a user with the role `edit` may not create; none of our processes runs here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.variables import TABLE, Ruling
from lab import kubectl, manifests, wait
from lab.client import client
from lab.errors import LabError
from tests.webhook.test_limits_apiserver import prepared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

IN, OUT, OPERATOR = "guards-in", "guards-out", "gpu-operator"
NAMED = "gpu-scheduler"
TENANT = "tenant"
READY_S = 30.0
CLAIM, RESREQ = "gpu.scheduling/claim", "gpu.scheduling/resreq"
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
NODE_GIVEN = "which only somebody who may bind pods may choose"
UNPREPARED = "names GpuClaim single-gpu, but the admission webhook tranche-webhook did not give it the GPU resources"
RUNTIME = "asks the container runtime for cards that nobody allocated"
KEYS = (
    "nvidia.cdi.k8s.io/container.main",
    "nvidia.cdi.k8s.io",
    "cdi.k8s.io/vendor",
    "nvidia.com/container.main.gpu-memory.request",
    "nvidia.com/container.main.gpus.devices",
    "devices.nri.io/container.main",
    "devices.nri.io",
    "cdi-devices.nri.io/container.main",
    "devices.noderesource.dev/pod",
    "cdi-devices.noderesource.dev/container.main",
    "io.kubernetes.cri-o.Devices",
)


def pod(limits: dict[str, Any] | None = None, *, node: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod with one container for another scheduler."""
    spec: dict[str, Any] = {
        "schedulerName": "batch",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits or {}}}],
    }
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}


class Guarded:
    """A control plane with our policies in force, and a tenant with the role `edit` in some namespaces."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def refusal(self, manifest: dict[str, Any], *, namespace: str = IN, user: str = TENANT, dry: bool = True) -> str:
        """Create an object as `user`; return the reason why it is refused, or an empty string."""
        who = ("--as", user) if user else ()
        how = ("--dry-run=server",) if dry else ()
        try:
            kubectl.run(self.layout, "-n", namespace, "create", *how, *who, "-f", "-", stdin=json.dumps(manifest))
        except LabError as error:
            return error.why
        return ""

    def apply_policies(self, *, component: str = "") -> None:
        """Apply the policies, with or without a component."""
        folder = self.layout.root / f"guards-{component}"
        folder.mkdir(exist_ok=True)
        link = folder / "manifests"
        if not link.exists():
            link.symlink_to(manifests.ROOT)
        components = {"components": [f"manifests/{component}"]} if component else {}
        (folder / "kustomization.yaml").write_text(json.dumps({"resources": ["manifests/base"], **components}))
        built = yaml.safe_load_all(
            kubectl.run(self.layout, "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder))
        )
        client(self.layout).apply(*(each for each in built if each["kind"] == "ValidatingAdmissionPolicy"))


@pytest.fixture(scope="module")
def guarded(control_plane: Layout) -> Iterator[Guarded]:
    """Yield policies in force and four namespaces, one of which opted in; the tenant has the role `edit` in each."""
    manifests.install(control_plane)
    cluster = Guarded(control_plane)
    for namespace in (IN, OUT, OPERATOR, NAMED):
        labels = {"gpu.scheduling/injection": "enabled"} if namespace == IN else {}
        client(control_plane).apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        )
        kubectl.run(
            control_plane, "-n", namespace, "create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}"
        )
    wait.until(
        lambda: NODE_GIVEN in cluster.refusal(pod({RESOURCES[0]: 1}, node="n1")), what="policies", timeout_s=READY_S
    )
    yield cluster
    kubectl.run(control_plane, "delete", "namespace", IN, OUT, OPERATOR, NAMED, "--wait=false")


@pytest.fixture
def everywhere(guarded: Guarded) -> Iterator[Guarded]:
    """Yield the same with the component that guards every namespace."""
    guarded.apply_policies(component="cluster-wide")
    sent = pod(annotations={KEYS[0]: "x"})
    wait.until(lambda: guarded.refusal(sent, namespace=OUT), what="the component in force", timeout_s=READY_S)
    yield guarded
    guarded.apply_policies()
    wait.until(lambda: not guarded.refusal(sent, namespace=OUT), what="the component gone", timeout_s=READY_S)


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
    """Such a pod would close its node for everybody. NVIDIA's operator tests nodes by pods like that."""
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
        kubectl.run(
            guarded.layout,
            *("-n", IN, "create", "--dry-run=server", "-f", "-"),
            *("--as", "system:node:n1", "--as-group", "system:nodes", "--as-group", "system:masters"),
            stdin=json.dumps(sent),
        )
    finally:
        client(guarded.layout).delete("node", "n1")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 1}], ids=["plain", "gpu"])
def test_runtime_plugin_annotation_is_refused_at_creation(guarded: Guarded, key: str, limits: dict[str, Any]) -> None:
    """With such a plugin, the annotation would give any card even to a pod without a GPU request."""
    words = guarded.refusal(pod(limits, annotations={key: "nvidia.com/gpu=all"}))
    assert f"annotation {key} {RUNTIME}" in words
    assert guarded.refusal(pod(limits, annotations={"mine.cdi.k8s.io/x": "1", "nvidia.com/containers": "1"})) == ""


@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 1}], ids=["plain", "gpu"])
def test_request_by_a_mount_is_refused_in_a_pod_that_opts_out(guarded: Guarded, limits: dict[str, Any]) -> None:
    """NVIDIA's runtime reads the mounts of each container, whatever the labels of its pod say."""
    sent = pod(limits, labels={"gpu.scheduling/injection": "disabled"})
    sent["spec"]["volumes"] = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
    mount = {"name": "null", "mountPath": "/var/run/nvidia-container-devices/all"}
    sent["spec"]["containers"][0]["volumeMounts"] = [mount]
    assert "mounts a volume below /var/run/nvidia-container-devices" in guarded.refusal(sent)
    assert guarded.refusal(sent, namespace=OUT) == ""


@pytest.mark.parametrize("key", KEYS)
def test_runtime_plugin_annotation_is_refused_in_an_update(guarded: Guarded, key: str) -> None:
    """A restarted container would read the annotation."""
    name = f"later-{KEYS.index(key)}"
    sent = pod({"cpu": 1})
    sent["metadata"]["name"] = name
    sent["spec"]["schedulingGates"] = [{"name": "tests/guards"}]
    assert guarded.refusal(sent, dry=False) == ""
    annotate = ("-n", IN, "annotate", "pod", name, "--as", TENANT)
    with pytest.raises(LabError, match="it can be neither added nor changed nor"):
        kubectl.run(guarded.layout, *annotate, f"{key}=nvidia.com/gpu=all")
    kubectl.run(guarded.layout, *annotate, "mine=1")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("subresource", ["pods/p/binding", "bindings"])
def test_runtime_plugin_annotation_is_refused_in_a_binding(guarded: Guarded, key: str, subresource: str) -> None:
    """A Binding's annotations become the pod's; only the scheduler's Binding, checked by the fence, may have these."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {key: "nvidia.com/gpu=all"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    path = f"/api/v1/namespaces/{OUT}/{subresource}?dryRun=All"
    with pytest.raises(LabError, match="is written by the Tranche scheduler"):
        kubectl.run(guarded.layout, "create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def test_cluster_wide_component_guards_other_namespaces(everywhere: Guarded) -> None:
    """The component cluster-wide guards annotations everywhere except in the operator's namespace."""
    for key in KEYS:
        asking = pod(annotations={key: "management.nvidia.com/gpu=all"})
        assert RUNTIME in everywhere.refusal(asking, namespace=OUT)
        assert RUNTIME in everywhere.refusal(asking, namespace="kube-public", user="")
        assert everywhere.refusal(asking, namespace=OPERATOR) == ""
    gated = pod()
    gated["spec"]["schedulingGates"] = [{"name": "tests/guards"}]
    assert everywhere.refusal(gated, namespace=OUT, dry=False) == ""
    with pytest.raises(LabError, match="it can be neither added nor changed nor"):
        kubectl.run(everywhere.layout, "-n", OUT, "annotate", "pod", "p", "--as", TENANT, f"{KEYS[0]}=x")
    client(everywhere.layout).delete("pod", "p", namespace=OUT, grace_s=0)


def test_annotations_of_other_namespaces_are_not_guarded_by_default(guarded: Guarded) -> None:
    """Without the component, another GPU scheduler may write them in namespaces that did not opt in."""
    assert guarded.refusal(pod(annotations={KEYS[0]: "x"}), namespace=OUT) == ""


def claim_pod(scheduler: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod that names a GpuClaim and requests nothing itself."""
    sent = pod(annotations={CLAIM: "single-gpu"}, **metadata)
    sent["spec"]["schedulerName"] = scheduler
    sent["spec"]["schedulingGates"] = [{"name": "tests/guards"}]
    return sent


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "tranche"])
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
        assert guarded.refusal(sent, dry=False) == ""
    for user in ((), ("--as", TENANT)):
        annotate = ("-n", IN, "annotate", "--overwrite", *user, "pod")
        for change in (("claims", f"{CLAIM}=other"), ("claims", f"{CLAIM}-"), ("claims-nothing", f"{CLAIM}=other")):
            with pytest.raises(
                LabError,
                match=f"annotation {CLAIM} says which GPUs the pod has, or who pays",
            ):
                kubectl.run(guarded.layout, *annotate, *change)
        kubectl.run(guarded.layout, *annotate, "claims", f"mine={len(user)}")


@pytest.mark.parametrize("name", [row.name for row in TABLE if row.ruling is Ruling.REMOVED])
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
def named(guarded: Guarded) -> Iterator[Guarded]:
    """Yield the same with the component gpu-scheduler, which opts in a namespace by name; it has no label."""
    guarded.apply_policies(component=NAMED)
    sent = pod(annotations={KEYS[0]: "x"})
    wait.until(lambda: guarded.refusal(sent, namespace=NAMED), what="the component in force", timeout_s=READY_S)
    yield guarded
    guarded.apply_policies()
    wait.until(lambda: not guarded.refusal(sent, namespace=NAMED), what="the component gone", timeout_s=READY_S)


def test_namespace_opted_in_by_name_is_guarded(named: Guarded) -> None:
    """While the webhook is down, a GPU pod there is refused as in a namespace with the label, unless it opts out."""
    sent = pod({RESOURCES[0]: 1})
    del sent["spec"]["schedulerName"]
    assert "did not prepare this pod" in named.refusal(sent, namespace=NAMED)
    assert named.refusal(sent, namespace=OUT) == ""
    sent["metadata"]["labels"] = {"gpu.scheduling/injection": "disabled"}
    assert named.refusal(sent, namespace=NAMED) == ""
    assert RUNTIME in named.refusal(pod(annotations={KEYS[0]: "nvidia.com/gpu=all"}), namespace=NAMED)
    assert named.refusal(pod(annotations={KEYS[0]: "nvidia.com/gpu=all"}), namespace=OUT) == ""


def test_alias_is_guarded_in_every_namespace(named: Guarded) -> None:
    """The scheduler takes pods of its alias wherever they are, so they must be prepared, and may not be too large."""
    sent = pod({RESOURCES[0]: 1})
    assert named.refusal(sent, namespace=OUT) == ""
    sent["spec"]["schedulerName"] = NAMED
    assert "did not prepare this pod" in named.refusal(sent, namespace=OUT)
    large = pod()
    large["spec"] |= {"schedulerName": NAMED, "nodeSelector": {f"label-{number}": "x" for number in range(33)}}
    assert "spec.nodeSelector has 33 labels, 32 is the limit" in named.refusal(large, namespace=OUT)


def test_requirement_of_an_alias_is_guarded(named: Guarded) -> None:
    """The webhook turns the requirements of such pods into requests, too."""
    sent = pod(annotations={RESREQ: "gpu=1"})
    assert named.refusal(sent, namespace=NAMED) == ""
    sent["spec"]["schedulerName"] = NAMED
    assert f"annotation {RESREQ} asks for a GPU" in named.refusal(sent, namespace=NAMED)
