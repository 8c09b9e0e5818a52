"""Admission end to end: the manifests, the webhook's process with its own ServiceAccount, a real API server."""

from __future__ import annotations

import base64
import copy
import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import health, kubeconfig, manifests, wait
from lab.client import Client, client
from lab.errors import LabError
from lab.layout import Port
from tests.support import identities, namespaces
from tests.support.access import may
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

IN, OUT = "admission-in", "admission-out"
ACCOUNT = "system:serviceaccount:tranche-system:"
SECRET, CONFIGURATIONS = "tranche-webhook-ca", "mutatingwebhookconfigurations.admissionregistration.k8s.io"
GPU = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
ALLOCATION = json.dumps(
    {
        "v": 1,
        "node": "n1",
        "containers": {"main": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 3000, "cores": 300}]},
    }
)


def pod(name: str, *, limits: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a pod with one container, `main`."""
    container: dict[str, Any] = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    if limits:
        container["resources"] = {"limits": limits}
    # The gate keeps the schedulers of the suite's cluster from placing it.
    gates = [{"name": "tests/admission"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], "schedulingGates": gates},
    }


@dataclass
class Cluster:
    """The suite's cluster, with the requests of its users and administrators."""

    layout: Layout

    @property
    def api(self) -> Client:
        """The API server, for the administrator."""
        return client(self.layout)

    def create(self, manifest: dict[str, Any], *, namespace: str, user: str = "") -> dict[str, Any]:
        """Create an object, as `user` with every right where one is named; return it as admitted."""
        (created,) = self._as(user).create(manifest, namespace=namespace)
        return created

    def _as(self, user: str) -> Client:
        """Return the API server for a user with every right, or for the administrator."""
        return client(self.layout, user=user, groups=("system:masters",)) if user else self.api

    def scheduler(self, manifest: dict[str, Any], *, namespace: str) -> str:
        """Create a pod as a dry run and return its schedulerName."""
        (admitted,) = self.api.create(manifest, namespace=namespace, dry_run=True)
        name: str = admitted["spec"]["schedulerName"]
        return name

    @contextmanager
    def system_namespace_opted_in(self) -> Iterator[str]:
        """Opt a namespace of Kubernetes itself in while the block runs; yield its name."""
        self.api.patch("namespace", "kube-public", {"metadata": {"labels": {"gpu.scheduling/injection": "enabled"}}})
        try:
            yield "kube-public"
        finally:
            self.api.patch("namespace", "kube-public", {"metadata": {"labels": {"gpu.scheduling/injection": None}}})

    def refuses(self, manifest: dict[str, Any], *, namespace: str) -> str:
        """Create an object; return why it is refused, empty if it is not."""
        return refusal(lambda: self.api.create(manifest, namespace=namespace))

    def bind(self, namespace: str, name: str, annotations: dict[str, str], *, user: str, fenced: bool = False) -> None:
        """Post a Binding as `user` with every right, with or without the label that the fence selects."""
        labels = {"gpu.scheduling/fenced": "true"} if fenced else {}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "target": {"kind": "Node", "name": "n1"},
        }
        path = self.api.path("pods", name, namespace=namespace, subresource="binding")
        self._as(user).request("POST", path, body=binding)

    def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a pod."""
        current: dict[str, Any] = client(self.layout).get("pod", name, namespace=namespace)
        return current


@dataclass
class Webhook:
    """A webhook process."""

    layout: Layout
    identity: str
    drain_seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "webhook", "--kubeconfig", self.identity),
                *("--host", "127.0.0.1", "--port", str(self.layout.port(Port.WEBHOOK))),
                *("--metrics-port", str(self.layout.port(Port.WEBHOOK_METRICS))),
                *("--dns-names", "localhost", "--ip-addresses", "127.0.0.1"),
                *("--drain-seconds", str(self.drain_seconds)),
                # Otherwise the webhook would restore the caBundle during a test.
                *("--certificates-poll-seconds", "600"),
            ]
        )
        wait.until(self.is_ready, what="webhook ready", timeout_s=PATIENCE_S)

    def stop(self) -> int:
        """Stop the process with SIGTERM, as a kubelet does; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def is_ready(self) -> bool:
        """Whether the process is ready."""
        return health.is_alive(self.layout, Port.WEBHOOK_METRICS, "/readyz")

    def is_alive(self) -> bool:
        """Whether the process serves."""
        return health.is_alive(self.layout, Port.WEBHOOK_METRICS, "/healthz")

    def reviews(self) -> float:
        """Return the number of reviews that the process has answered."""
        # Do not use a proxy of the environment for local addresses.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.layout.port(Port.WEBHOOK_METRICS)}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("tranche_webhook_reviews_total{"))


@pytest.fixture(scope="module")
def cluster(control_plane: Layout) -> Iterator[Cluster]:
    """Yield the suite's cluster with our manifests and two namespaces, one of which opted in."""
    prepared = Cluster(control_plane)
    manifests.install(control_plane)
    namespaces.create(control_plane, IN, {"gpu.scheduling/injection": "enabled"})
    namespaces.create(control_plane, OUT)
    yield prepared
    for namespace in (IN, OUT):
        prepared.api.delete("namespace", namespace, wait=False)
    prepared.api.delete("leadership", "tranche-scheduler", namespace="tranche-system", missing_ok=True)


@pytest.fixture(scope="module")
def webhook(cluster: Cluster) -> Iterator[Webhook]:
    """Run the webhook as its ServiceAccount; policies and caBundle are in force when this yields."""
    identity = kubeconfig.service_account_kubeconfig(cluster.layout, namespace="tranche-system", name="tranche-webhook")
    running = Webhook(cluster.layout, str(identity))
    running.start()
    wait.until(lambda: _is_refused(cluster), what="policies in force", timeout_s=PATIENCE_S)
    wait.until(lambda: _is_injected(cluster), what="caBundle in force", timeout_s=PATIENCE_S)
    yield running
    running.stop()


def _is_refused(cluster: Cluster) -> bool:
    forged = pod("probe", annotations={"gpu.scheduling/allocated": "0"})
    try:
        cluster.scheduler(forged, namespace=OUT)
    except LabError:
        return True
    return False


def _is_injected(cluster: Cluster) -> bool:
    try:
        cluster.scheduler(pod("p", limits=GPU), namespace=IN)
    except LabError:
        return False
    return True


# ---- the manifests ---------------------------------------------------------------------------------------------------


def test_policies_have_no_type_warnings(cluster: Cluster) -> None:
    """The API server's type check of every expression reports nothing."""
    names = [
        each["metadata"]["name"]
        for file in (manifests.ROOT / "base").glob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
        if each["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert "tranche-creation" in names

    def checked() -> tuple[dict[str, Any]] | None:
        """Return the warnings by policy once each policy is checked as it is now."""
        found = {}
        for name in names:
            policy = client(cluster.layout).get("validatingadmissionpolicy", name)
            status = policy.get("status", {})
            if status.get("observedGeneration") != policy["metadata"]["generation"]:
                return None
            if warnings := status.get("typeChecking", {}).get("expressionWarnings"):
                found[name] = warnings
        return (found,)

    (first,) = wait.until(checked, what="policies type-checked", timeout_s=PATIENCE_S)
    # A policy whose parameter was defined just before may have been checked without it; a change has it checked again.
    for name in first:
        for failure_policy in ("Ignore", "Fail"):
            spec = {"spec": {"failurePolicy": failure_policy}}
            client(cluster.layout).patch("validatingadmissionpolicy", name, spec)
    (again,) = wait.until(checked, what="policies type-checked again", timeout_s=PATIENCE_S)
    assert again == {}


@pytest.mark.parametrize(
    ("allowed", "verb", "resource", "where"),
    [
        (True, "get", "secrets", {"name": SECRET, "namespace": SYSTEM_NAMESPACE}),
        (True, "patch", "secrets", {"name": SECRET, "namespace": SYSTEM_NAMESPACE}),
        (False, "get", "secrets", {"name": "other", "namespace": SYSTEM_NAMESPACE}),
        (False, "update", "secrets", {"name": SECRET, "namespace": SYSTEM_NAMESPACE}),
        (True, "patch", CONFIGURATIONS, {"name": "tranche"}),
        (False, "patch", CONFIGURATIONS, {"name": "other"}),
        (False, "list", "pods", {}),
        (True, "list", "gpuclaims.gpu.scheduling", {}),
        (False, "patch", "gpuclaims.gpu.scheduling", {}),
        (True, "watch", "gpuqueues.gpu.scheduling", {}),
        (False, "patch", "gpuqueues.gpu.scheduling", {}),
        (True, "watch", "gpuquotas.gpu.scheduling", {}),
        (False, "patch", "gpuquotas.gpu.scheduling", {}),
        (True, "watch", "namespaces", {}),
        (False, "patch", "namespaces", {}),
    ],
)
def test_webhook_may_do_its_work_and_nothing_else(
    cluster: Cluster,
    allowed: bool,  # noqa: FBT001
    verb: str,
    resource: str,
    where: dict[str, str],
) -> None:
    """It has rights to one Secret and one configuration, reads claims, queues, quotas and namespaces, and no pods."""
    assert may(client(cluster.layout, user=f"{ACCOUNT}tranche-webhook"), verb, resource, **where) == allowed


# ---- who is injected -------------------------------------------------------------------------------------------------


def test_pod_of_an_opted_in_namespace_is_injected(cluster: Cluster, webhook: Webhook) -> None:
    """It is routed, its resources are complete and its environment is set, for every kind of container."""
    sent = pod("slice", limits={"nvidia.com/gpumem": 3000})
    container = sent["spec"]["containers"][0]
    container["env"] = [{"name": "MINE", "value": "$(CUDA_VISIBLE_DEVICES)"}]
    sent["spec"]["initContainers"] = [
        {**copy.deepcopy(container), "name": "first"},
        {**copy.deepcopy(container), "name": "side", "restartPolicy": "Always"},
        {"name": "plain", "image": container["image"]},
    ]
    spec = cluster.create(sent, namespace=IN)["spec"]
    assert spec["schedulerName"] == "tranche"
    for each in (spec["containers"][0], *spec["initContainers"][:2]):
        assert each["resources"]["limits"] == each["resources"]["requests"]
        assert each["resources"]["limits"] == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}
        paths = {
            entry["name"]: entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for entry in each["env"]
        }
        key = f"cuda-visible-devices.gpu.scheduling/{each['name']}"
        assert paths["CUDA_VISIBLE_DEVICES"] == f"metadata.annotations['{key}']"
        assert each["env"][-1]["name"] == "MINE"
    assert spec["initContainers"][2]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_pod_of_another_namespace_is_unchanged(cluster: Cluster, webhook: Webhook) -> None:
    """Without the label the pod stays as it was sent, and the webhook is not called."""
    before = webhook.reviews()
    spec = cluster.create(pod("untouched", limits=GPU), namespace=OUT)["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert "env" not in spec["containers"][0]
    assert webhook.reviews() == before


def test_pod_without_gpu_is_not_sent_to_the_webhook(cluster: Cluster, webhook: Webhook) -> None:
    """Even in an opted-in namespace, the match conditions keep the pod from the webhook."""
    before = webhook.reviews()
    cluster.create(pod("ordinary", limits={"cpu": 1}), namespace=IN)
    assert webhook.reviews() == before


def test_pod_label_opts_in(cluster: Cluster, webhook: Webhook) -> None:
    """A pod opts in with its own label in a namespace without the label."""
    created = cluster.create(pod("by-label", limits=GPU, labels={"gpu.scheduling/injection": "enabled"}), namespace=OUT)
    assert created["spec"]["schedulerName"] == "tranche"


def test_pod_with_both_labels_is_reviewed_once(cluster: Cluster, webhook: Webhook) -> None:
    """The two entries never match the same pod."""
    before = webhook.reviews()
    cluster.create(pod("both", limits=GPU, labels={"gpu.scheduling/injection": "enabled"}), namespace=IN)
    assert webhook.reviews() == before + 1


@pytest.mark.parametrize("label", ["gpu.scheduling/injection=disabled", "hami.io/webhook=ignore"])
def test_pod_label_opts_out(cluster: Cluster, webhook: Webhook, label: str) -> None:
    """The pod's label takes precedence, for the webhook and for the policy."""
    key, _, value = label.partition("=")
    created = cluster.create(pod(f"out-{value}", limits=GPU, labels={key: value}), namespace=IN)
    assert created["spec"]["schedulerName"] == "default-scheduler"


def test_foreign_scheduler_keeps_its_pod(cluster: Cluster, webhook: Webhook) -> None:
    """A pod of another scheduler is neither injected nor refused."""
    sent = pod("foreign", limits=GPU)
    sent["spec"]["schedulerName"] = "batch"
    assert cluster.create(sent, namespace=IN)["spec"]["schedulerName"] == "batch"


def test_count_of_zero_is_not_a_gpu_request(cluster: Cluster, webhook: Webhook) -> None:
    """Policy and webhook both treat it as no GPU request."""
    created = cluster.create(pod("zero", limits={"nvidia.com/gpu": 0}), namespace=IN)
    assert created["spec"]["schedulerName"] == "default-scheduler"


def test_system_namespaces_are_left_alone(cluster: Cluster, webhook: Webhook) -> None:
    """Even with the label, so the webhook cannot block its own pods."""
    sent = pod("system", limits=GPU)
    sent["spec"]["serviceAccountName"] = "default"
    with cluster.system_namespace_opted_in() as namespace:
        before = webhook.reviews()
        cluster.create(sent, namespace=namespace)
        try:
            assert webhook.reviews() == before
        finally:
            cluster.api.delete("pod", "system", namespace=namespace, grace_s=0)


def crowd(containers: int, *, with_gpu: int) -> dict[str, Any]:
    """Return a pod with many containers, some with a GPU."""
    sent = pod("crowd", limits=GPU)
    (container,) = sent["spec"]["containers"]
    sent["spec"]["containers"] = [
        {**container, "name": f"c{number}", "resources": container["resources"] if number < with_gpu else {}}
        for number in range(containers)
    ]
    return sent


def test_pod_at_the_container_limit_is_admitted(cluster: Cluster, webhook: Webhook) -> None:
    """A pod at the limits is admitted: the policy's cost grows linearly with the containers, not quadratically."""
    assert cluster.scheduler(crowd(64, with_gpu=32), namespace=IN) == "tranche"


@pytest.mark.parametrize(("containers", "with_gpu"), [(600, 300), (600, 1), (33, 33)])
def test_error_for_too_many_containers_names_the_limit(
    cluster: Cluster, webhook: Webhook, containers: int, with_gpu: int
) -> None:
    """The message names the limit, not the policy's cost; the limit does not apply to pods without a GPU request."""
    words = cluster.refuses(crowd(containers, with_gpu=with_gpu), namespace=IN)
    assert "is the limit for a pod that Tranche schedules" in words
    assert f"spec.containers and spec.initContainers have {containers} entries" in words
    assert cluster.scheduler(crowd(containers, with_gpu=0), namespace=IN) == "default-scheduler"


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_binary_suffix_is_refused_with_the_remedy(cluster: Cluster, webhook: Webhook) -> None:
    """The message has the field, its value and the right value."""
    words = cluster.refuses(pod("big", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": "10Gi"}), namespace=IN)
    assert 'spec.containers[0].resources.limits["nvidia.com/gpumem"]' in words
    assert 'write "10240" for 10Gi' in words


@pytest.mark.parametrize(("written", "meant"), [("gpumemory", "gpumem"), ("gpucore", "gpucores")])
def test_misspelt_resource_is_refused(cluster: Cluster, webhook: Webhook, written: str, meant: str) -> None:
    """It is refused even without any GPU resource in the pod; other devices are left alone."""
    words = cluster.refuses(pod("typo", limits={f"nvidia.com/{written}": 3000}), namespace=IN)
    assert f"did you mean nvidia.com/{meant}?" in words
    assert cluster.scheduler(pod("mig", limits={"nvidia.com/mig-1g.5gb": 1}), namespace=IN) == "default-scheduler"


def test_users_devices_are_replaced_with_a_warning(cluster: Cluster, webhook: Webhook) -> None:
    """The warning names the container and the variable."""
    sent = pod("greedy", limits=GPU)
    sent["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    done = subprocess.run(
        [
            str(cluster.layout.bin / "kubectl"),
            f"--kubeconfig={cluster.layout.kubeconfig}",
            "-n",
            IN,
            "create",
            "-f",
            "-",
        ],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Warning: container main: NVIDIA_VISIBLE_DEVICES" in done.stderr
    [entry] = [
        entry
        for entry in cluster.get(IN, "greedy")["spec"]["containers"][0]["env"]
        if entry["name"] == "NVIDIA_VISIBLE_DEVICES"
    ]
    assert "value" not in entry


@pytest.mark.parametrize("namespace", [IN, OUT, "kube-public"])
@pytest.mark.parametrize(
    "key",
    [
        "gpu.scheduling/allocation",
        "gpu.scheduling/allocated",
        "gpu.scheduling/leader",
        "gpu.scheduling/charged-to",
        "cuda-visible-devices.gpu.scheduling/main",
        "nccl-ib-hca.gpu.scheduling/main",
        "hami.io/vgpu-node",
        "hami.io/bind-phase",
    ],
)
def test_forged_annotation_is_refused_at_creation(cluster: Cluster, webhook: Webhook, namespace: str, key: str) -> None:
    """In every namespace, with or without a GPU; the message names the key and the user."""
    words = cluster.refuses(pod("forged", annotations={key: ALLOCATION}), namespace=namespace)
    assert key in words
    assert "kubernetes-admin" in words


def test_placed_pod_keeps_its_allocation(cluster: Cluster, webhook: Webhook) -> None:
    """The scheduler's Binding passes; afterwards its annotations can be neither changed, removed nor extended."""
    sent = pod("placed", limits=GPU)
    del sent["spec"]["schedulingGates"]
    cluster.create(sent, namespace=IN)
    key = "cuda-visible-devices.gpu.scheduling/main"
    carried = {key: "GPU-a", "gpu.scheduling/allocation": ALLOCATION}
    with pytest.raises(LabError, match=r"gpu\.scheduling/fenced"):
        cluster.bind(IN, "placed", carried, user=f"{ACCOUNT}tranche-scheduler")
    lead = {"apiVersion": "gpu.scheduling/v1", "kind": "Leadership", "spec": {"epoch": 1, "identity": "test"}}
    lead["metadata"] = {"name": "tranche-scheduler", "namespace": "tranche-system"}
    client(cluster.layout).apply(lead)
    token = {"gpu.scheduling/leader": "1/test"}

    def bound() -> bool:
        try:
            cluster.bind(IN, "placed", carried | token, user=f"{ACCOUNT}tranche-scheduler", fenced=True)
        except LabError as error:
            if "no params found" in error.why:  # the API server has not seen the Leadership yet
                return False
            raise
        return True

    wait.until(bound, what="a Binding through the fence", timeout_s=PATIENCE_S)
    assert cluster.get(IN, "placed")["metadata"]["annotations"][key] == "GPU-a"
    for subresource, changed, value in (
        ("", key, "GPU-b"),
        ("", key, None),
        ("", "hami.io/vgpu-node", "n2"),
        ("", "gpu.scheduling/allocation", None),
        ("status", key, None),
    ):
        patch = {"metadata": {"annotations": {changed: value}}}
        change = partial(cluster.api.patch, "pod", "placed", patch, namespace=IN, subresource=subresource)
        assert changed in refusal(change)
    cluster.api.patch("pod", "placed", {"metadata": {"annotations": {"mine": "1"}}}, namespace=IN)
    cluster.api.patch("pod", "placed", {"metadata": {"labels": {"gpu.scheduling/injection": "disabled"}}}, namespace=IN)
    identities.kubelet(cluster.layout, "n1").delete("pod", "placed", namespace=IN, grace_s=0, wait=False)


def test_foreign_binding_with_an_allocation_is_refused(cluster: Cluster, webhook: Webhook) -> None:
    """A Binding's annotations become the pod's, so only the scheduler's Binding may carry ours."""
    sent = pod("target", limits=GPU)
    del sent["spec"]["schedulingGates"]
    cluster.create(sent, namespace=IN)
    keys = {"nvidia-visible-devices.gpu.scheduling/main": "all"}
    with pytest.raises(LabError, match=r"nvidia-visible-devices\.gpu\.scheduling/main"):
        cluster.bind(IN, "target", keys, user="mallory")
    legacy = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "target", "annotations": keys},
        "target": {"kind": "Node", "name": "n1"},
    }
    words = refusal(lambda: cluster.api.request("POST", f"/api/v1/namespaces/{IN}/bindings", body=legacy))
    assert "nvidia-visible-devices.gpu.scheduling/main" in words
    cluster.bind(IN, "target", {"note": "plain"}, user="mallory")
    cluster.api.delete("pod", "target", namespace=IN, grace_s=0)


@pytest.mark.parametrize("labels", [{}, {"gpu.scheduling/injection": "disabled"}, {"hami.io/webhook": "ignore"}])
@pytest.mark.parametrize("namespace", [IN, OUT, "kube-public"])
def test_pod_for_our_scheduler_requires_admission(
    cluster: Cluster, webhook: Webhook, namespace: str, labels: dict[str, str]
) -> None:
    """Otherwise it would get a card but see all cards of the node, because its environment is not set."""
    sent = pod("by-name", limits=GPU, labels=labels)
    sent["spec"]["schedulerName"] = "tranche"
    if namespace == IN and not labels:
        assert "env" in cluster.create(sent, namespace=namespace)["spec"]["containers"][0]
        return
    words = cluster.refuses(sent, namespace=namespace)
    assert "container main asks for a GPU" in words
    assert "gpu.scheduling/injection: enabled" in words


@pytest.mark.parametrize("namespace", [IN, OUT, "kube-public"])
def test_resize_cannot_request_a_gpu(cluster: Cluster, webhook: Webhook, namespace: str) -> None:
    """Kubernetes allows a resize to add limits to a container without any, which admission has never checked."""
    name = f"resized-{namespace}"
    sent = pod(name)
    sent["spec"] |= {"schedulerName": "tranche", "serviceAccountName": "default"}
    cluster.create(sent, namespace=namespace)
    try:
        patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": GPU, "requests": GPU}}]}}
        words = refusal(
            lambda: cluster.api.patch("pod", name, patch, namespace=namespace, subresource="resize", by="strategic")
        )
        assert "the GPU resources of container main are those with which the pod was created" in words
    finally:
        cluster.api.delete("pod", name, namespace=namespace, grace_s=0)


def test_trusted_identity_may_allocate_statically(cluster: Cluster, webhook: Webhook) -> None:
    """The pod gets limits, references and the annotations that they read."""
    sent = pod("static", annotations={"gpu.scheduling/allocation": ALLOCATION})
    created = cluster.create(sent, namespace=IN, user=f"{ACCOUNT}tranche-static")
    container = created["spec"]["containers"][0]
    assert container["resources"]["limits"] == {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": "3k",
        "nvidia.com/gpucores": "30",
    }
    assert created["metadata"]["annotations"]["cuda-visible-devices.gpu.scheduling/main"] == "GPU-a"
    assert created["spec"]["schedulerName"] == "tranche"


# ---- when the webhook is not there -----------------------------------------------------------------------------------


def test_wrong_authority_refuses_gpu_pods_only(cluster: Cluster, webhook: Webhook) -> None:
    """Without a webhook a wrong caBundle stays, without harm to other pods; `python -m certs ensure` repairs it."""
    webhook.stop()
    stranger = client(cluster.layout).get("configmap", "kube-root-ca.crt", namespace=IN)["data"]["ca.crt"]
    bundle = base64.b64encode(stranger.encode()).decode()
    patch = [
        {"op": "replace", "path": f"/webhooks/{entry}/clientConfig/caBundle", "value": bundle} for entry in (0, 1, 2)
    ]
    cluster.api.patch("mutatingwebhookconfiguration", "tranche", patch, by="json")
    assert not _is_injected(cluster)
    cluster.create(pod("meanwhile"), namespace=IN)
    assert "already up to date" not in _certs(cluster, "ensure")
    webhook.start()
    wait.until(lambda: _is_injected(cluster), what="the right caBundle in force", timeout_s=PATIENCE_S)
    shown = _certs(cluster, "show")
    assert "Secret tranche-system/tranche-webhook-ca" in shown
    assert "caBundle of namespace.gpu.scheduling" in shown
    assert "PRIVATE" not in shown
    assert "already up to date" in _certs(cluster, "ensure")


def test_dead_webhook_blocks_gpu_pods_only(cluster: Cluster, webhook: Webhook) -> None:
    """SIGTERM ends it with exit code 0; then the policy refuses GPU pods, and every other pod is created."""
    assert webhook.stop() == 0
    try:
        words = cluster.refuses(pod("unseen", limits=GPU), namespace=IN)
        assert "container main asks for a GPU" in words
        assert "tranche-webhook" in words
        assert "gpu.scheduling/injection: disabled" in words
        words = cluster.refuses(
            pod("unseen", limits=GPU, labels={"gpu.scheduling/injection": "enabled"}), namespace=OUT
        )
        assert "tranche-webhook" in words
        cluster.create(pod("alive"), namespace=IN)
        cluster.create(pod("elsewhere", limits=GPU), namespace=OUT)
        cluster.create(pod("opted-out", limits=GPU, labels={"hami.io/webhook": "ignore"}), namespace=IN)
    finally:
        webhook.start()


def test_policy_and_webhook_select_the_same_pods(cluster: Cluster, webhook: Webhook) -> None:
    """Without a webhook, the policy refuses exactly the pods that the webhook's selectors match."""
    injections = ({}, *({"gpu.scheduling/injection": word} for word in ("enabled", "disabled", "true")))
    requests = [
        (namespace, {**injection, **ignored})
        for namespace in (IN, OUT, "kube-public")
        for injection in injections
        for ignored in ({}, {"hami.io/webhook": "ignore"}, {"hami.io/webhook": "enabled"})
    ]

    def create(namespace: str, labels: dict[str, str]) -> str:
        try:
            return cluster.scheduler(pod("one-of-many", limits=GPU, labels=labels), namespace=namespace)
        except LabError as error:
            return error.why

    with cluster.system_namespace_opted_in():
        with_webhook = [create(*each) for each in requests]
        assert webhook.stop() == 0
        try:
            without_webhook = [create(*each) for each in requests]
        finally:
            webhook.start()
    assert {*with_webhook} == {"tranche", "default-scheduler"}
    for before, now in zip(with_webhook, without_webhook, strict=True):
        assert "tranche-creation" in now if before == "tranche" else now == before


@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0"])
def test_hand_written_references_must_be_complete(cluster: Cluster, webhook: Webhook, variable: str) -> None:
    """A user who writes our references while no webhook runs cannot change or omit one."""
    injected = cluster.create(pod(f"template-{len(variable)}", limits=GPU), namespace=IN)["spec"]["containers"][0][
        "env"
    ]
    assert webhook.stop() == 0
    try:
        sent = pod(f"handmade-{len(variable)}", limits=GPU)
        sent["spec"]["schedulerName"] = "tranche"
        sent["spec"]["containers"][0]["env"] = injected
        cluster.create(sent, namespace=IN)
        forged = [
            {"name": variable, "value": "0"} if entry["name"] == variable else entry
            for entry in copy.deepcopy(injected)
        ]
        sent = pod("handmade-forged", limits=GPU)
        sent["spec"]["schedulerName"] = "tranche"
        sent["spec"]["containers"][0]["env"] = forged
        assert "container main asks for a GPU" in cluster.refuses(sent, namespace=IN)
    finally:
        webhook.start()


def test_draining_webhook_still_answers(cluster: Cluster, webhook: Webhook) -> None:
    """After SIGTERM it is not ready but still answers, until every API server calls another replica."""
    assert webhook.stop() == 0
    webhook.drain_seconds = 4.0
    webhook.start()
    assert webhook.process is not None
    try:
        webhook.process.send_signal(signal.SIGTERM)
        wait.until(lambda: not webhook.is_ready() and webhook.is_alive(), what="not ready", timeout_s=PATIENCE_S)
        assert cluster.create(pod("late", limits=GPU), namespace=IN)["spec"]["schedulerName"] == "tranche"
        assert webhook.process.poll() is None
        assert webhook.process.wait(PATIENCE_S) == 0
    finally:
        webhook.drain_seconds = 0.0
        webhook.start()


def _certs(cluster: Cluster, command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "certs", command, "--kubeconfig", str(cluster.layout.kubeconfig)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
