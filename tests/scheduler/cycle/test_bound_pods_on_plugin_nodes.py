"""Pods that get all cards of their application, on nodes where a device plugin counts the cards."""

import pytest

from allocation import names
from allocation.bindings.binding import BindingSpec
from allocation.delivery import NodeDelivery
from allocation.inventory import Card, NodeInventory
from allocation.label_selector import LabelSelector
from allocation.settings import AllocationSettings, BindingSettings
from allocation.steps import finish
from cluster.gpu_binding import BindingMeta, GpuBinding
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.scheduling import schedule

CARDS = (
    '[{"id":"GPU-0","count":10,"devmem":1000,"devcore":100,"type":"x","health":true},'
    '{"id":"GPU-1","count":10,"devmem":1000,"devcore":100,"type":"x","health":true}]'
)


def cluster() -> ClusterState:
    """Return a cluster of one node that the plugin serves, with two cards that are bound to the application."""
    made = state(settings=AllocationSettings(bindings=BindingSettings("labelled")))
    plenty = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "20"}
    metadata = {"name": "n0", "annotations": {names.HAMI_REGISTER: CARDS}}
    made.set_node(node("n0", metadata=metadata, status={"allocatable": plenty}))
    for card in ("GPU-0", "GPU-1"):
        spec = BindingSpec(card, "comfyui", pod_selector=LabelSelector())
        made.bindings.set(GpuBinding(BindingMeta(name=card.lower()), spec))
    return made


def asks(cards: int, **labels: str) -> Pod:
    """Return a pod of the application that requests `cards`."""
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": "500"}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return pod("a", labels={names.APP_NAME: "comfyui", **labels}, containers=containers)


@pytest.mark.parametrize(("requested", "policy", "cards"), [(2, "all", 2), (1, "single", 1)])
def test_a_plugin_gives_the_requested_number(requested: int, policy: str, cards: int) -> None:
    """All of them if they are requested, or as many as are requested."""
    made = cluster()
    result = finish(schedule(made, asks(requested, **{names.CONSUME_POLICY: policy})))
    assert isinstance(result, Scheduled)
    assert result.allocation is not None
    assert len(result.allocation.containers["main"]) == cards


def test_a_plugin_cannot_give_another_number() -> None:
    """The kubelet would give the pod one device."""
    result = finish(schedule(cluster(), asks(1)))
    assert isinstance(result, Unschedulable)
    assert "BoundCountMismatch: HAMi's device plugin gives the pod as many cards as it requests: 1" in result.note


def test_nor_can_the_kubelet_of_a_node_whose_agent_is_its_device_plugin() -> None:
    """It gives as many devices as the pod requests; with that number the pod fits."""
    made = cluster()
    reported = status_of(NodeInventory("n0", (Card("GPU-0", 0, 1000), Card("GPU-1", 1, 1000))))
    reported.delivery = NodeDelivery("device-plugin", is_registered=True)
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0"), reported))
    result = finish(schedule(made, asks(1)))
    assert isinstance(result, Unschedulable)
    assert "DevicePluginMismatch: its kubelet gives the pod as many devices as it requests: 1, and 2" in result.note
    assert isinstance(finish(schedule(made, asks(2))), Scheduled)
