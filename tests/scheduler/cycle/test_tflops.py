"""Pods that request TFLOPs, from the report of the agent to the sums of quotas and queues."""

from __future__ import annotations

from typing import Any

import pytest

from allocation.inventory import Card, NodeInventory
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.wire import environment
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import schedule

A100 = "NVIDIA A100-SXM4-40GB"


def cluster(*models: str, **known: int) -> ClusterState:
    """Return the state of a cluster with a node for each model, which has one card of it."""
    made = state(settings=AllocationSettings(models=known))
    for number, model in enumerate(models):
        name = f"n{number}"
        made.set_node(node(name))
        inventory = NodeInventory(name, (Card(f"GPU-{name}-0", 0, 40_000, slots=4, model=model),))
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(inventory)))
    return made


def asks(name: str, **amounts: int) -> Pod:
    """Return a pod that requests these amounts of one card."""
    limits = {"nvidia.com/gpu": "1", **{f"nvidia.com/{key}": str(amount) for key, amount in amounts.items()}}
    containers: list[dict[str, Any]] = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return pod(name, containers=containers)


def decided(made: ClusterState, asked: Pod) -> Scheduled | Unschedulable:
    """Return the decision about a pod, whose cards are reserved if there are any."""
    result = finish(schedule(made, asked))
    assert isinstance(result, Scheduled | Unschedulable)
    return result


def test_models_and_the_configuration_say_how_fast_a_card_is() -> None:
    """100 TFLOPs are a third of an A100, and more than half of a card that the configuration knows."""
    made = cluster(A100, "Acme", Acme=180)
    nodes = {decided(made, asks(f"p{number}", gpumem=1, gputflops=100)).node for number in range(4)}  # type: ignore[union-attr]
    assert nodes == {"n0", "n1"}
    assert [made.ledger.free(made.ledger.row(f"n{each}") or 0, 0)[3] for each in range(2)] == [12_000, 80_000]


def test_the_event_names_the_models_that_are_not_known() -> None:
    """And the fastest card, if all are slower."""
    made = cluster("Acme 9000", A100)
    result = decided(made, asks("p", gputflops=400))
    assert isinstance(result, Unschedulable)
    assert "CardInsufficientTflops" in result.note
    assert "container main asks for 400 TFLOPs of one card; the fastest card in this cluster has 312" in result.note
    assert "the TFLOPs of Acme 9000 are not known: set allocation.models in the configuration" in result.note


@pytest.mark.parametrize(("percent", "fits"), [(25, True), (26, False)])
def test_a_quota_of_tflops_counts_percentages(percent: int, *, fits: bool) -> None:
    """100 of 178 TFLOPs are used: 25 % of an A100 are 78."""
    made = cluster(A100, A100)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gputflops": 178}}))
    assert isinstance(decided(made, asks("first", gpumem=1, gputflops=100)), Scheduled)
    result = decided(made, asks("second", gpumem=1, gpucores=percent))
    assert isinstance(result, Scheduled) == fits
    if isinstance(result, Unschedulable):
        assert "GpuQuota q limits nvidia.com/gputflops to 178: 100 used" in result.note
    assert made.quotas.use("default").tflops == 100_000 + 78_000 * fits


def test_a_restart_counts_the_same() -> None:
    """The annotation has the TFLOPs of a pod that requests them; its limit is the percentage, rounded up."""
    made = cluster(A100)
    asked = asks("p", gpumem=1, gputflops=104)
    result = decided(made, asked)
    assert isinstance(result, Scheduled)
    written = environment.annotations(result.allocation)
    assert written["cuda-device-sm-limit.gpu.scheduling/main"] == "34"
    fresh = cluster(A100)
    running = asks("p", gpumem=1, gputflops=104)
    metadata = {"name": "p", "namespace": "default", "uid": "uid-p"}
    assert running.metadata.uid == metadata["uid"]
    running.metadata.annotations.update(written)
    running.spec.node_name = "n0"
    fresh.set_pod(running)
    assert fresh.ledger.free(0, 0) == made.ledger.free(0, 0)
    assert fresh.quotas.use("default").tflops == 104_000


def test_the_dominant_share_may_be_of_tflops() -> None:
    """On a mixed fleet, half of the fast card is more of all TFLOPs than of all cores."""
    made = cluster(A100, "Tesla T4")
    decided(made, asks("p", gpumem=1, gputflops=156))
    (key,) = made.fair_share.use
    share = made.fair_share.share(key)
    assert (share.used, share.total) == (156_000, 312_000 + 65_000)
