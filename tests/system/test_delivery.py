"""How a container really gets its cards: a real API server, kubelet and containerd 2, with CDI and NRI.

NVIDIA's software is replaced by stand-ins (support/nvidia_software.py); cards are devices that work as `/dev/null`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.delivery import Delivery
from allocation.names import ALLOCATION
from allocation.wire import record
from lab import fleet, wait
from lab.client import client
from lab.errors import LabError
from lab.files import write_private
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import agents_plugin, nvidia_software
from tests.system.support.agents_plugin import REGISTERED
from tests.system.support.nri_plugin import NriPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]

NRI_KEY = "nvidia.cdi.k8s.io/container.main"


@contextmanager
def reported(layout: Layout, deliveries: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Let the agent report these deliveries of these nodes."""
    fleet_file = layout.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    nodes = yaml.safe_load(before)
    changed = {node: {**nodes[node], "delivery": content} for node, content in deliveries.items()}
    write_private(fleet_file, yaml.safe_dump({**nodes, **changed}))
    _wait_for(layout, deliveries)
    try:
        yield
    finally:
        write_private(fleet_file, before)
        _wait_for(layout, {node: {"mode": "cdi"} for node in deliveries})


def delivery(layout: Layout, content: dict[str, Any]) -> AbstractContextManager[None]:
    """Let the agent report this delivery of the real node."""
    return reported(layout, {layout.node_name: content})


def _wait_for(layout: Layout, deliveries: dict[str, dict[str, Any]]) -> None:
    def are_reported() -> bool:
        statuses = {each["metadata"]["name"]: each["status"] for each in client(layout).list("gns")}
        return all(statuses[node].get("delivery") == content for node, content in deliveries.items())

    wait.until(are_reported, what=f"deliveries {deliveries} in the reports", timeout_s=PATIENCE_S)


@pytest.fixture
def cards(tranche_node: Layout) -> list[str]:
    """The cards of the real node, each with its CDI specifications."""
    uuids = [fleet.card(tranche_node.node_name, index) for index in range(fleet.CARDS_PER_NODE)]
    nvidia_software.write_specs(tranche_node.cdi_specs, uuids)
    return uuids


def running(namespace: Namespace, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create a pod, wait until it is ready, and return it."""
    namespace.create(manifest)
    name = manifest["metadata"]["name"]
    namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, f"pod/{name}")
    return namespace.pod(name)


def devices(namespace: Namespace, name: str, container: str = "main") -> set[str]:
    """Return the cards that a container has, as device files."""
    listed = namespace.kubectl("exec", name, "-c", container, "--", "ls", "/dev").split()
    return {device for device in listed if device.startswith("nvidia")}


def allocated(bound: dict[str, Any]) -> set[str]:
    """Return the device files of the cards that a pod's container `main` is allocated."""
    shares = record.decode(bound["metadata"]["annotations"][ALLOCATION]).containers["main"]
    return {f"nvidia{share.index}" for share in shares}


def failure(namespace: Namespace, name: str) -> str:
    """Wait until a pod's container cannot be created, and return the error."""

    def message() -> str | None:
        for status in namespace.pod(name)["status"].get("containerStatuses", []):
            waiting = status["state"].get("waiting", {})
            if waiting.get("reason") in ("CreateContainerError", "RunContainerError"):
                return str(waiting["message"])
        return None

    return wait.until(message, what=f"the error of {name}", timeout_s=PATIENCE_S)


def with_second_container(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with a container `other` that requests no GPU, of an image that wants all."""
    (main,) = manifest["spec"]["containers"]
    other = {**main, "name": "other", "image": "tranche.local/cuda-like:lab", "resources": {}}
    manifest["spec"]["containers"].append(other)
    return manifest


@pytest.mark.parametrize(
    ("mode", "software"),
    [
        ("cdi", nvidia_software.operator_runtime),
        ("env", nvidia_software.legacy_runtime),
        ("nvidia-nri", nvidia_software.operator_nri_plugin),
    ],
    ids=["cdi", "env", "nvidia-nri"],
)
def test_container_has_the_cards_of_its_allocation(
    tranche_node: Layout,
    namespace: Namespace,
    cards: list[str],
    mode: Delivery,
    software: Callable[..., list[str]],
) -> None:
    """In every mode its devices are exactly those of its allocation, and another container of the pod has none."""
    manifest = with_second_container(pod("both", node=tranche_node.node_name, gpu=2, gpumem=3000))
    with delivery(tranche_node, {"mode": mode}), NriPlugin(tranche_node.nri_socket, software):
        bound = running(namespace, manifest)
        assert len(allocated(bound)) == 2
        assert devices(namespace, "both") == allocated(bound)
        assert devices(namespace, "both", "other") == set()
    assert (NRI_KEY in bound["metadata"]["annotations"]) == (mode == "nvidia-nri")


@pytest.mark.parametrize(
    ("mode", "software"),
    [("cdi", nvidia_software.operator_runtime), ("nvidia-nri", nvidia_software.operator_nri_plugin)],
    ids=["cdi", "nvidia-nri"],
)
def test_unknown_card_starts_no_container(
    tranche_node: Layout,
    namespace: Namespace,
    cards: list[str],
    mode: Delivery,
    software: Callable[..., list[str]],
) -> None:
    """If the node does not know the card by its UUID, containerd refuses the container: no other card is given."""
    nvidia_software.write_specs(tranche_node.cdi_specs, cards[:1])
    manifest = pod("unknown", node=tranche_node.node_name, gpu=1, gpumem=3000)
    manifest["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": cards[5]}
    with delivery(tranche_node, {"mode": mode}), NriPlugin(tranche_node.nri_socket, software):
        namespace.create(manifest)
        message = failure(namespace, "unknown")
    assert "unresolvable CDI devices" in message
    assert cards[5] in message


def test_bare_uuid_does_not_start_on_a_stock_operator(
    tranche_node: Layout, namespace: Namespace, cards: list[str]
) -> None:
    """The reason why `env` is not the default: the operator's runtime looks for it among its management devices."""
    with delivery(tranche_node, {"mode": "env"}), NriPlugin(tranche_node.nri_socket, nvidia_software.operator_runtime):
        namespace.create(pod("bare", node=tranche_node.node_name, gpu=1, gpumem=3000))
        assert f"unresolvable CDI devices {nvidia_software.MANAGEMENT}=" in failure(namespace, "bare")


def test_node_that_cannot_deliver_takes_no_pods_until_corrected(tranche_node: Layout, namespace: Namespace) -> None:
    """The pending pod names toolkit and mode; the corrected report places it without another event."""
    wrong = {"mode": "cdi", "toolkit": {"mode": "legacy", "version": "1.17.8"}}
    with delivery(tranche_node, wrong):
        namespace.create(pod("waits", node=tranche_node.node_name, gpu=1, gpumem=3000))
        assert "DeliveryUnavailable" in (reason := namespace.unplaced("waits"))
        assert "NVIDIA's container toolkit 1.17.8 in mode legacy" in reason
    assert namespace.placed(1)


def test_preflight_names_every_misconfigured_node_with_its_remedy(tranche_node: Layout, namespace: Namespace) -> None:
    """Four nodes that fail in four ways, by what their agents report; a pod waits for all of them."""
    operator = {"mode": "cdi", "version": "1.18.0", "defaultKind": nvidia_software.MANAGEMENT}
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "gpu-sim-0": ({"mode": "env", "toolkit": operator}, "set agent.delivery to cdi"),
        "gpu-sim-1": ({"mode": "cdi", "toolkit": {"mode": "auto", "version": "1.14.6"}}, "set agent.delivery to env"),
        "gpu-sim-2": (
            {"mode": "cdi", "toolkit": {**operator, "acceptsVariable": False}},
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
        ),
        tranche_node.node_name: ({"mode": "nvidia-nri", "hasNriSocket": False}, "--set cdi.nriPluginEnabled=true"),
    }
    with reported(tranche_node, {node: content for node, (content, _) in wrong.items()}):
        namespace.create(pod("nowhere", gpu=1, gpumem=3000))
        assert "DeliveryUnavailable" in namespace.unplaced("nowhere")
        command = [sys.executable, "-m", "cli", "preflight", "-n", namespace.name, "-o", "json"]
        environment = {**os.environ, "KUBECONFIG": str(tranche_node.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 1, done.stderr
        findings = json.loads(done.stdout)["findings"]
    for node, (_, remedy) in wrong.items():
        (found,) = [each for each in findings if f"node {node}" in each["objects"] and each["severity"] == "blocks"]
        assert "it cannot deliver cards" in found["what"]
        assert remedy in found["nextStep"]
    assert namespace.placed(1)


def test_long_container_name_waits_where_an_annotation_delivers(tranche_node: Layout, namespace: Namespace) -> None:
    """The key of the annotation cannot hold it; the reason says so."""
    manifest = pod("long", node=tranche_node.node_name, gpu=1, gpumem=3000)
    manifest["spec"]["containers"][0]["name"] = "c" * 54
    with delivery(tranche_node, {"mode": "nvidia-nri"}):
        namespace.create(manifest)
        assert "ContainerNameTooLong" in namespace.unplaced("long")


# ---- the agent as a plugin -------------------------------------------------------------------------------------------


def test_agent_delivers_the_cards_of_an_allocation_itself(
    tranche_node: Layout, namespace: Namespace, cards: list[str]
) -> None:
    """Without NVIDIA's runtime and without a variable; the pod's other container has none."""
    manifest = with_second_container(pod("both", node=tranche_node.node_name, gpu=2, gpumem=3000))
    with delivery(tranche_node, REGISTERED), agents_plugin.running(tranche_node):
        bound = running(namespace, manifest)
        assert len(allocated(bound)) == 2
        assert devices(namespace, "both") == allocated(bound)
        assert devices(namespace, "both", "other") == set()


def test_no_container_starts_while_the_agent_is_away(
    tranche_node: Layout, namespace: Namespace, cards: list[str]
) -> None:
    """The runtime's own validator refuses it, and it starts with its cards as soon as the plugin is back."""
    with delivery(tranche_node, REGISTERED):
        namespace.create(pod("early", node=tranche_node.node_name, gpu=1, gpumem=3000))
        assert 'required plugin "tranche" not present' in failure(namespace, "early")
        with agents_plugin.running(tranche_node):
            namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/early")
            assert devices(namespace, "early") == allocated(namespace.pod("early"))


def test_node_without_its_plugin_takes_no_pods(tranche_node: Layout, namespace: Namespace) -> None:
    """Only pods that were bound before it went away wait for it at the node."""
    with delivery(tranche_node, {"mode": "nri", "isRegistered": False}):
        namespace.create(pod("waits", node=tranche_node.node_name, gpu=1, gpumem=3000))
        assert "its agent is not registered as a plugin of the container runtime" in namespace.unplaced("waits")
    assert namespace.placed(1)


def test_pod_that_another_bound_starts_no_container(
    tranche_node: Layout, namespace: Namespace, cards: list[str]
) -> None:
    """Who may bind can put it on the node; the runtime refuses its container, because it has no allocation."""
    with delivery(tranche_node, REGISTERED), agents_plugin.running(tranche_node):
        namespace.create(pod("bound", gpu=1, gpumem=999999))
        namespace.unplaced("bound")
        target = {"apiVersion": "v1", "kind": "Node", "name": tranche_node.node_name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": target}
        namespace.api.request("POST", f"/api/v1/namespaces/{namespace.name}/pods/bound/binding", body=binding)
        assert "asks for a GPU, and the pod has no allocation" in failure(namespace, "bound")


# ---- forgery with a real plugin --------------------------------------------------------------------------------------


@pytest.fixture
def plugin(tranche_node: Layout, cards: list[str]) -> Iterator[None]:
    """The GPU Operator's NRI plugin on the real node."""
    with NriPlugin(tranche_node.nri_socket, nvidia_software.operator_nri_plugin):
        yield


def test_plugin_obeys_annotations_that_no_policy_refuses(
    tranche_node: Layout, plain_namespace: Namespace, plugin: None
) -> None:
    """The attack is real: without manifests/cluster-wide, a pod of another namespace gets every card."""
    manifest = pod("greedy", node=tranche_node.node_name)
    manifest["metadata"]["annotations"] = {NRI_KEY: "nvidia.com/gpu=all"}
    running(plain_namespace, manifest)
    assert len(devices(plain_namespace, "greedy")) == fleet.CARDS_PER_NODE


@pytest.mark.parametrize("requests", [{}, {"gpu": 1, "gpumem": 3000}], ids=["without-gpu", "with-gpu"])
def test_plugin_gets_no_annotation_of_a_user(
    tranche_node: Layout, namespace: Namespace, plugin: None, requests: dict[str, int]
) -> None:
    """In an opted-in namespace the keys are refused at creation and in updates; the container starts without cards."""
    manifest = pod("user", node=tranche_node.node_name, **requests)
    forged = {**manifest, "metadata": {**manifest["metadata"], "annotations": {NRI_KEY: "nvidia.com/gpu=all"}}}
    with pytest.raises(LabError, match="nvidia.cdi.k8s.io"):
        namespace.create(forged)
    running(namespace, manifest)
    with pytest.raises(LabError, match="nvidia.cdi.k8s.io"):
        namespace.patch("pod", "user", {"metadata": {"annotations": {NRI_KEY: "nvidia.com/gpu=all"}}})
    assert devices(namespace, "user") == set()


def test_plugin_gets_no_annotation_of_a_foreign_binding(
    tranche_node: Layout, namespace: Namespace, plugin: None
) -> None:
    """An administrator who binds a pod directly cannot add the keys; only the scheduler's fenced Binding may."""
    manifest = pod("bound")
    manifest["spec"]["schedulerName"] = "nobody"
    namespace.create(manifest)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {NRI_KEY: "nvidia.com/gpu=all"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": tranche_node.node_name},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/bound/binding"
    with pytest.raises(LabError, match="nvidia.cdi.k8s.io"):
        namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert "nodeName" not in namespace.pod("bound")["spec"]


def test_containerd_ignores_cdi_annotations_of_a_pod(
    tranche_node: Layout, plain_namespace: Namespace, cards: list[str]
) -> None:
    """Only CDI devices that the kubelet requests count, so `cdi.k8s.io` keys give nothing without a plugin."""
    manifest = pod("ignored", node=tranche_node.node_name)
    manifest["metadata"]["annotations"] = {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}
    running(plain_namespace, manifest)
    assert devices(plain_namespace, "ignored") == set()
