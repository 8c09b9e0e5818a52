"""A node takes GPU pods only if it can deliver cards to their containers, and gets them in its own form."""

import asyncio
from typing import Any

import msgspec
import pytest

from allocation.delivery import Delivery, NodeDelivery, Toolkit
from allocation.fractions import READY
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.steps import finish
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from scheduler import gpu_requirements
from scheduler.binding.binder import Binder
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.objects import Node, NodeWithImages
from scheduler.queue.entry import Rejected
from scheduler.state.cluster_state import ClusterState
from scheduler.state.deliveries import Deliveries
from tests.scheduler.support.builders import node, pod, state, status
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.scheduling import schedule

LEGACY = Toolkit("legacy", "1.17.8")
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}


def report(name: str, delivery: NodeDelivery) -> GpuNodeStatus:
    """Return the report of an agent."""
    reported = status(name)
    assert reported.status is not None
    reported.status.delivery = delivery
    return reported


def node_with(*conditions: dict[str, str]) -> Node:
    """Return node n1 with conditions of kai-gpu-fractioning."""
    status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
    return node("n1", status={**status, "conditions": [{"type": READY, **each} for each in conditions]})


def decide(made: ClusterState, name: str, container: str = "main") -> ScheduleResult | None:
    """Schedule a pod with one GPU container."""
    containers = [{"name": container, "resources": {"limits": LIMITS, "requests": LIMITS}}]
    return finish(schedule(made, pod(name, containers=containers)))


def test_node_whose_delivery_cannot_work_takes_no_pods() -> None:
    """Its containers would not start; another node takes the pod, and the reason names node and toolkit."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("cdi", LEGACY)))
    refused = decide(made, "a")
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"DeliveryUnavailable"}
    assert "node n1 cannot deliver cards: NVIDIA's container toolkit 1.17.8 in mode legacy" in refused.note
    made.set_node(node("n2"))
    made.agent_reports.set(report("n2", NodeDelivery("env", LEGACY)))
    chosen = decide(made, "b")
    assert isinstance(chosen, Scheduled)
    assert chosen.node == "n2"


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], "it has no condition gpu-fractioning.nvidia.com/Ready"),
        ([{"status": "False", "reason": "FractiondNotReady"}], "is False (FractiondNotReady)"),
        ([{"status": "Unknown"}], "is Unknown"),
        ([{"status": "False", "reason": "x" * 2000}], f"is False ({'x' * 128})"),
    ],
    ids=["missing", "false", "unknown", "long"],
)
def test_a_node_on_which_kai_gpu_fractioning_is_not_ready_takes_no_pods(
    conditions: list[dict[str, str]], said: str
) -> None:
    """Its containers would start without their cards; the reason has what the component says, and no more of it."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("nvfractions")))
    made.set_node(node_with(*conditions), node("n1"))
    refused = decide(made, "a")
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"DeliveryUnavailable"}
    assert said in refused.note
    assert len(refused.note) < 500
    made.agent_reports.set(report("n1", NodeDelivery("cdi")))
    assert isinstance(decide(made, "b"), Scheduled), "another delivery does not depend on the component"


async def test_kai_gpu_fractioning_that_becomes_ready_retries_waiting_pods() -> None:
    """The condition alone is an event that lifts the reason, and one that sets it again; so does the node's end."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("nvfractions")))
    made.set_pod(pod("a", memory=1))
    entry = await made.queue.pop()
    made.queue.add_unschedulable(entry, Rejected("rejected", frozenset({"DeliveryUnavailable"})))
    ready = node_with({"status": "True", "reason": "AllDaemonsReady"})
    made.set_node(ready, node("n1"))
    async with asyncio.timeout(20):
        assert await made.queue.pop() is entry
    assert isinstance(decide(made, "b"), Scheduled)
    made.set_node(node_with({"status": "False"}), ready)
    assert made.deliveries.rejections.keys() == {"n1"}
    made.set_node(ready, node_with({"status": "False"}))
    assert not made.deliveries.rejections
    made.drop_node(ready)
    assert made.deliveries.rejections.keys() == {"n1"}, "a new node of this name has to say it again"


def test_conditions_of_a_node_that_are_not_read_are_dropped() -> None:
    """Each kubelet has four and more of them, and renews them all the time."""
    kubelet = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    made = node("n1", status={"allocatable": {}, "conditions": [kubelet, {"type": READY, "status": "True"}]})
    assert [each.type for each in made.status.conditions] == [READY]
    with_images = {"metadata": {"name": "n1"}, "status": {"conditions": [kubelet], "images": [{"names": ["a"]}]}}
    assert msgspec.convert(with_images, NodeWithImages).status.conditions == ()


async def test_corrected_delivery_retries_waiting_pods() -> None:
    """The new report is an event that lifts the reason."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("cdi", LEGACY)))
    made.set_pod(pod("a", memory=1))
    entry = await made.queue.pop()
    made.queue.add_unschedulable(entry, Rejected("rejected", frozenset({"DeliveryUnavailable"})))
    made.set_pod(pod("other", memory=1, node="n1", phase="Failed"))
    assert made.queue.depths()["unschedulable"] == 1
    made.agent_reports.set(report("n1", NodeDelivery("env", LEGACY)))
    async with asyncio.timeout(20):
        assert await made.queue.pop() is entry


@pytest.mark.parametrize(("mode", "longest"), [("nvidia-nri", 53), ("nvfractions", 33)])
def test_long_container_name_is_rejected_where_an_annotation_delivers(mode: Delivery, longest: int) -> None:
    """A key has 63 characters for it and more; other nodes take the pod, also after a cached ranking."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery(mode)))
    made.set_node(node_with({"status": "True"}), node("n1"))
    assert isinstance(decide(made, "a", "c" * longest), Scheduled)
    refused = decide(made, "b", "c" * (longest + 1))
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"ContainerNameTooLong"}
    assert f"more than {longest} characters" in refused.note
    made.set_node(node("n2"))
    made.agent_reports.set(status("n2"))
    chosen = decide(made, "d", "c" * (longest + 1))
    assert isinstance(chosen, Scheduled)
    assert chosen.node == "n2"
    made.agent_reports.set(report("n1", NodeDelivery("cdi")))
    made.set_node(node("n2", spec={"unschedulable": True}))
    assert isinstance(decide(made, "e", "c" * (longest + 1)), Scheduled)


def test_names_may_be_long_again_without_an_agent_that_reports_an_annotation() -> None:
    """Another plugin serves the node then, which needs no key."""
    deliveries = Deliveries()
    resources = {"limits": LIMITS, "requests": LIMITS}
    asks = pod("a", containers=[{"name": "c" * 54, "resources": resources}])
    requirements = gpu_requirements.read(asks.spec, {}, AllocationSettings(), find_claim=lambda _: None)
    deliveries.set_status(report("n1", NodeDelivery("nvidia-nri")))
    assert deliveries.rejections_of(requirements).keys() == {"n1"}
    deliveries.drop("n1")
    assert deliveries.rejections_of(requirements) == {}


def test_a_kubelet_that_counts_devices_takes_no_pod_to_which_it_would_give_others() -> None:
    """Those of an init container go to the next one, without asking; other nodes take such a pod."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("device-plugin", is_registered=True)))
    assert isinstance(decide(made, "a"), Scheduled)
    gpu = {"name": "prepare", "resources": {"limits": LIMITS, "requests": LIMITS}}
    refused = finish(schedule(made, pod("b", initContainers=[gpu], containers=[{"name": "main"}])))
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"DevicePluginMismatch"}
    assert "its kubelet gives the devices of init container prepare to the containers after it" in refused.note
    sidecar = {**gpu, "restartPolicy": "Always"}
    assert isinstance(
        finish(schedule(made, pod("c", initContainers=[sidecar], containers=[{"name": "main"}]))), Scheduled
    )
    made.agent_reports.set(report("n1", NodeDelivery("cdi")))
    assert isinstance(finish(schedule(made, pod("d", initContainers=[gpu], containers=[{"name": "main"}]))), Scheduled)


def test_a_node_is_no_device_plugins_any_more_without_its_agent() -> None:
    """What its kubelet would count is then another plugin's affair."""
    deliveries = Deliveries()
    asks = PodRequest((ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", count=1),))
    reported = report("n1", NodeDelivery("device-plugin", is_registered=True))
    deliveries.set_status(reported)
    assert deliveries.rejections_of_count("n1", asks, 2).keys() == {"n1"}
    assert deliveries.rejections_of_count("n1", asks, 1) == deliveries.rejections_of_count("n2", asks, 2) == {}
    deliveries.drop("n1")
    assert deliveries.rejections_of_count("n1", asks, 2) == {}


def test_a_node_whose_agent_is_no_device_plugin_yet_takes_no_pods() -> None:
    """Its kubelet would reject them for good."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("device-plugin", is_registered=False)))
    refused = decide(made, "a")
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"DeliveryUnavailable"}
    assert "its agent is not registered as a device plugin of the kubelet" in refused.note


class Server(Api):
    """An API server that keeps the annotations of the last Binding."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}

    async def request(self, _method: str, _path: str, *, body: Any, **_how: Any) -> bytes:  # type: ignore[override]
        """Accept a Binding."""
        self.annotations = body["metadata"]["annotations"]
        return b"{}"


async def written(delivery: NodeDelivery | None) -> dict[str, str]:
    """Return the annotations of a Binding to a node with this delivery, or with an agent that reports none."""
    made, server = state("n1"), Server()
    made.set_node(node_with({"status": "True"}), node("n1"))
    if delivery is not None:
        made.agent_reports.set(report("n1", delivery))
    asks = pod("a", memory=100)
    chosen = finish(schedule(made, asks))
    assert isinstance(chosen, Scheduled)
    binder = Binder(fenced(server), delivery_of=made.deliveries.of)
    await binder.bind(asks, chosen)
    return server.annotations


async def test_binding_names_cards_as_the_node_delivers_them() -> None:
    """`CUDA_VISIBLE_DEVICES` has bare UUIDs everywhere; the annotation for NVIDIA's plugin exists on its nodes only."""
    visible, key = "nvidia-visible-devices.gpu.scheduling/main", "nvidia.cdi.k8s.io/container.main"
    forms: dict[Delivery | None, tuple[str, str | None]] = {
        None: ("runtime.nvidia.com/gpu=", None),
        "cdi": ("runtime.nvidia.com/gpu=", None),
        "env": ("", None),
        "nvidia-nri": ("runtime.nvidia.com/gpu=", "nvidia.com/gpu="),
    }
    for mode, (form, annotated) in forms.items():
        annotations = await written(None if mode is None else NodeDelivery(mode))
        uuid = annotations["cuda-visible-devices.gpu.scheduling/main"]
        assert uuid.startswith("GPU-n1-")
        assert annotations[visible] == form + uuid
        assert annotations.get(key) == (None if annotated is None else annotated + uuid)


async def test_binding_has_the_limits_that_kai_gpu_fractioning_reads() -> None:
    """They come in the write that sets the node, before the sandbox is created."""
    annotations = await written(NodeDelivery("nvfractions"))
    uuid = annotations["cuda-visible-devices.gpu.scheduling/main"]
    assert {key: value for key, value in annotations.items() if key.startswith("nvidia.com/container.")} == {
        "nvidia.com/container.main.gpus.devices": f"runtime.nvidia.com/gpu={uuid}",
        "nvidia.com/container.main.gpu-memory.request": "100Mi",
        "nvidia.com/container.main.gpu-memory.limit": "100Mi",
    }
    assert annotations["nvidia-visible-devices.gpu.scheduling/main"] == "void"


def test_node_without_an_agent_gets_bare_uuids() -> None:
    """HAMi's plugin serves it, which passes bare UUIDs itself."""
    made = state("n1")
    assert made.deliveries.of("n1") == "cdi"
    made.agent_reports.drop(msgspec.structs.replace(status("n1")))
    assert made.deliveries.of("n1") == "env"
