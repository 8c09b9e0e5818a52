"""A node takes GPU pods only if it can deliver cards to their containers, and gets them in its own form."""

import asyncio
from typing import Any

import msgspec

from allocation.delivery import Delivery, NodeDelivery, Toolkit
from allocation.steps import finish
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.binding.binder import Binder
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.queue.entry import Rejected
from scheduler.state.cluster_state import ClusterState
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


def test_long_container_name_is_rejected_where_an_annotation_delivers() -> None:
    """A key has 63 characters for `container.<name>`; other nodes take the pod, also after a cached ranking."""
    made = state("n1")
    made.agent_reports.set(report("n1", NodeDelivery("nvidia-nri")))
    assert isinstance(decide(made, "a", "c" * 53), Scheduled)
    refused = decide(made, "b", "c" * 54)
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"ContainerNameTooLong"}
    made.set_node(node("n2"))
    made.agent_reports.set(status("n2"))
    chosen = decide(made, "d", "c" * 54)
    assert isinstance(chosen, Scheduled)
    assert chosen.node == "n2"


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


def test_node_without_an_agent_gets_bare_uuids() -> None:
    """HAMi's plugin serves it, which passes bare UUIDs itself."""
    made = state("n1")
    assert made.deliveries.of("n1") == "cdi"
    made.agent_reports.drop(msgspec.structs.replace(status("n1")))
    assert made.deliveries.of("n1") == "env"
