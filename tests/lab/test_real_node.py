from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import images, kubectl, namespace
from lab import real_node as module
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout
from tests.support.patience import KUBECTL_PATIENCE

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]

DEVICES = "GPU-00000000-0000-0000-0000-000000000000"


def pod(layout: Layout, name: str, *, image: str = images.PLAIN.name, **metadata: Any) -> dict[str, Any]:
    """Return a pod on the real node whose environment refers to an annotation, as the webhook writes it."""
    reference = {"fieldRef": {"fieldPath": "metadata.annotations['devices.example.com/main']"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "nodeName": layout.node_name,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "3600"],
                    "env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": reference}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        },
    }


def run_pod(layout: Layout, name: str, **options: Any) -> None:
    """Create a pod and wait until it runs."""
    client(layout).apply(pod(layout, name, **options))
    kubectl.run(layout, "wait", f"pod/{name}", "--for=condition=Ready", KUBECTL_PATIENCE)


def environment(layout: Layout, name: str) -> dict[str, str]:
    """Return the environment of a pod's container."""
    lines = kubectl.run(layout, "exec", name, "--", "env").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_node_is_ready_with_its_own_identity(real_node: Layout) -> None:
    """The kubelet registered its Node and address, as the user that NodeRestriction expects."""
    node = client(real_node).get("node", real_node.node_name)
    addresses = {address["type"]: address["address"] for address in node["status"]["addresses"]}
    assert addresses == {"InternalIP": real_node.node_address, "Hostname": real_node.node_name}


def test_the_environment_has_the_value_of_the_annotation(real_node: Layout) -> None:
    """The kubelet resolves the environment from the annotation when it starts the container."""
    run_pod(real_node, "annotated", annotations={"devices.example.com/main": DEVICES})
    assert environment(real_node, "annotated")["CUDA_VISIBLE_DEVICES"] == DEVICES
    client(real_node).delete("pod", "annotated")


def test_a_missing_annotation_hides_every_gpu(real_node: Layout) -> None:
    """Without the annotation the variable is empty, so CUDA sees no device: it fails closed."""
    run_pod(real_node, "plain", image=images.CUDA_LIKE.name)
    seen = environment(real_node, "plain")
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert seen["NVIDIA_VISIBLE_DEVICES"] == "all"
    client(real_node).delete("pod", "plain")


def test_a_pod_with_a_runtime_class_runs(real_node: Layout) -> None:
    """The handler of the RuntimeClass that NVIDIA's installations use exists here as well."""
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "lab-nvidia"},
        "handler": "nvidia",
    }
    client(real_node).apply(runtime_class)
    manifest = pod(real_node, "classy")
    manifest["spec"]["runtimeClassName"] = "lab-nvidia"
    client(real_node).apply(manifest)
    kubectl.run(real_node, "wait", "pod/classy", "--for=condition=Ready", KUBECTL_PATIENCE)
    for kind, name in (("pod", "classy"), ("runtimeclass", "lab-nvidia")):
        client(real_node).delete(kind, name)


def test_the_node_does_not_change_the_machine(real_node: Layout) -> None:
    """Mounts of the node are not visible outside its namespaces."""
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(real_node.root) not in mounts
    assert not [folder for folder in namespace.FOLDERS if f" {folder} " in mounts]


def test_a_folder_with_too_long_a_path_is_refused(node_support: None) -> None:
    """The kubelet would exit, with an error that does not name the cause."""
    layout = Layout(root=Path("/" + "x" * 80))
    with pytest.raises(LabError, match="the kernel allows 107"):
        module.up(layout)
    assert not layout.root.exists()
