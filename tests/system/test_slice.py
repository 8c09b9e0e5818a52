"""From the label of a namespace to the environment of a container, on a real API server and kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from allocation import variables
from allocation.names import ALLOCATION, CARD_POLICY, CLAIM, USE_UUIDS
from allocation.wire import environment, record
from cluster.resource import GPU_CLAIMS
from lab import fleet, kubelet, manifests, wait
from lab.client import client
from lab.errors import LabError
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def deployment(*, node: str = "") -> dict[str, Any]:
    """Return a Deployment of three replicas, each with a slice of one card."""
    template = pod("unused", node=node, gpu=1, gpumem=3000, gpucores=30)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "three"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "three"}},
            "template": {"metadata": {"labels": {"app": "three"}}, "spec": template["spec"]},
        },
    }


def exec_environment(namespace: Namespace, name: str, container: str = "main") -> dict[str, str]:
    """Return the variables that Tranche manages, as a process in the container sees them."""
    output = namespace.kubectl("exec", name, "-c", container, "--", "env")
    return owned(output)


def owned(output: str) -> dict[str, str]:
    """Return the variables that Tranche manages from the output of `env`."""
    pairs = (line.partition("=") for line in output.splitlines())
    return {name: value for name, _, value in pairs if variables.is_owned(name)}


@pytest.mark.kubelet
def test_deployment_in_an_opted_in_namespace_gets_cards(tranche_node: Layout, namespace: Namespace) -> None:
    """Three pods get cards; `env` inside each running container equals the pod's allocation annotation."""
    namespace.create(deployment(node=tranche_node.node_name))
    namespace.kubectl("wait", "--for=condition=Available", KUBECTL_PATIENCE, "deployment/three")
    pods = namespace.placed(3)
    for each in pods:
        allocation = record.decode(each["metadata"]["annotations"][ALLOCATION])
        (share,) = allocation.containers["main"]
        assert (share.memory_mib, share.cores) == (3000, 300)
        assert each["spec"]["schedulerName"] == "tranche"
        assert each["spec"]["runtimeClassName"] == "nvidia"
        assert exec_environment(namespace, each["metadata"]["name"]) == environment.values((share,))


def test_deployment_in_another_namespace_waits(plain_namespace: Namespace) -> None:
    """Admission ignores it and no node advertises the resource, so it finds no capacity."""
    plain_namespace.create(deployment())
    wait.until(lambda: len(plain_namespace.pods()) == 3, what="3 pods", timeout_s=PATIENCE_S)
    for each in plain_namespace.pods():
        assert "Insufficient nvidia.com/gpu" in plain_namespace.unplaced(each["metadata"]["name"])
        assert each["spec"]["schedulerName"] == "default-scheduler"
        assert "env" not in each["spec"]["containers"][0]
        assert not any("gpu.scheduling" in key for key in each["metadata"].get("annotations", {}))


def test_binary_suffix_is_rejected_with_the_remedy(tranche: Layout, namespace: Namespace) -> None:
    """`gpumem: 10Gi` means bytes where MiB are expected: the error names the field, the value and the correct value."""
    with pytest.raises(LabError) as refused:
        namespace.create(pod("wrong", gpu=1, gpumem="10Gi"))
    assert 'spec.containers[0].resources.limits["nvidia.com/gpumem"]' in refused.value.why
    assert "10Gi" in refused.value.why
    assert "10240" in refused.value.why


@pytest.mark.kubelet
def test_every_kind_of_container_sees_its_own_cards(tranche_node: Layout, namespace: Namespace) -> None:
    """Init container, sidecar and two GPU containers each see their allocation; the one without GPU sees no card.

    The last one runs an image that requests all devices, as PyTorch's images do.
    """
    manifest = manifests.demo("environment")
    manifest["metadata"].setdefault("annotations", {})[CARD_POLICY] = "spread"
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": tranche_node.node_name}
    namespace.create(manifest)
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/environment")
    allocation = record.decode(namespace.pod("environment")["metadata"]["annotations"][ALLOCATION])
    assert set(allocation.containers) == {"prepare", "sidecar", "train", "serve"}
    assert len(allocation.containers["train"]) == 2
    assert {share.uuid for share in allocation.containers["train"]}.isdisjoint(
        {share.uuid for share in allocation.containers["serve"]}
    )
    for name in ("sidecar", "train", "serve"):
        assert exec_environment(namespace, "environment", name) == environment.values(allocation.containers[name])
    assert owned(namespace.kubectl("logs", "environment", "-c", "prepare")) == environment.values(
        allocation.containers["prepare"]
    )
    assert exec_environment(namespace, "environment", "log") == {"NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.kubelet
def test_two_shared_pods_see_one_card_with_limits_of_their_own(tranche_node: Layout, namespace: Namespace) -> None:
    """Both have the card of the claim; the memory of one is not the other's."""
    for name, memory in (("small", 3000), ("large", 9000)):
        devices = {"count": 1, "exclusivity": "Shared", "memoryMiB": memory}
        head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind}
        namespace.create({**head, "metadata": {"name": name}, "spec": {"devices": devices}})
        sharing = pod(name, node=tranche_node.node_name)
        sharing["metadata"]["annotations"] = {CLAIM: name, USE_UUIDS: fleet.card(tranche_node.node_name, 3)}
        namespace.create(sharing)
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/small", "pod/large")
    small, large = (exec_environment(namespace, name) for name in ("small", "large"))
    assert small["NVIDIA_VISIBLE_DEVICES"] == large["NVIDIA_VISIBLE_DEVICES"]
    assert small["NVIDIA_VISIBLE_DEVICES"].endswith(fleet.card(tranche_node.node_name, 3))
    assert (small["CUDA_DEVICE_MEMORY_LIMIT_0"], large["CUDA_DEVICE_MEMORY_LIMIT_0"]) == ("3000m", "9000m")


@pytest.mark.kubelet
def test_restarted_container_sees_the_same_cards(tranche_node: Layout, namespace: Namespace) -> None:
    """The kubelet resolves the references again, from the same annotations."""
    manifest = pod("restarted", node=tranche_node.node_name, gpu=1, gpumem=3000)
    # It ends as soon as the file exists, so the test decides when.
    manifest["spec"]["containers"][0]["command"] = ["sh", "-c", "while [ ! -e /end ]; do sleep 0.1; done"]
    namespace.create(manifest)
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/restarted")
    before = exec_environment(namespace, "restarted")
    namespace.kubectl("exec", "restarted", "--", "touch", "/end")

    def has_restarted() -> bool:
        (status,) = namespace.pod("restarted")["status"]["containerStatuses"]
        return bool(status["restartCount"] and status["ready"])

    wait.until(has_restarted, what="a restarted container", timeout_s=PATIENCE_S)
    assert exec_environment(namespace, "restarted") == before
    assert before["CUDA_VISIBLE_DEVICES"].startswith("GPU-")


@pytest.fixture
def without_kubelet(tranche_node: Layout) -> Iterator[Callable[[], None]]:
    """A function that stops the real node's kubelet, which is started again after the test."""
    yield lambda: kubelet.stop(tranche_node)
    kubelet.start(tranche_node)


@pytest.mark.kubelet
def test_restarted_kubelet_changes_no_cards(
    tranche_node: Layout, without_kubelet: Callable[[], None], namespace: Namespace
) -> None:
    """Running pods keep their cards; a pod that was bound while the kubelet was down starts with its own cards."""

    def container() -> str:
        (status,) = namespace.pod("before")["status"]["containerStatuses"]
        return str(status["containerID"])

    namespace.create(pod("before", node=tranche_node.node_name, gpu=1, gpumem=3000))
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/before")
    shown, runs = exec_environment(namespace, "before"), container()
    without_kubelet()
    namespace.create(pod("meanwhile", node=tranche_node.node_name, gpu=1, gpumem=3000))
    namespace.placed(2)
    kubelet.start(tranche_node)
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/before", "pod/meanwhile")
    assert (exec_environment(namespace, "before"), container()) == (shown, runs)
    allocation = record.decode(namespace.pod("meanwhile")["metadata"]["annotations"][ALLOCATION])
    assert exec_environment(namespace, "meanwhile") == environment.values(allocation.containers["main"])


@pytest.mark.kubelet
def test_kubectl_gpu_env_shows_what_the_container_sees(tranche_node: Layout, namespace: Namespace) -> None:
    """The command resolves references as the kubelet does."""
    namespace.create(pod("shown", node=tranche_node.node_name, gpu=2, gpumem=3000, gpucores=20))
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/shown")
    done = subprocess.run(
        [sys.executable, "-m", "cli", "env", "shown", "-n", namespace.name, "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KUBECONFIG": str(tranche_node.kubeconfig)},
    )
    assert json.dumps(exec_environment(namespace, "shown")["CUDA_VISIBLE_DEVICES"]) in done.stdout


def test_ordinary_pod_is_unchanged(tranche: Layout, namespace: Namespace) -> None:
    """In an opted-in namespace, a pod without a GPU request goes to the stock scheduler unchanged."""
    namespace.create(pod("ordinary"))
    (each,) = namespace.placed(1)
    assert each["spec"]["schedulerName"] == "default-scheduler"
    assert "env" not in each["spec"]["containers"][0]
    assert client(tranche).get("node", each["spec"]["nodeName"])
