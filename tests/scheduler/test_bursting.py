"""Limits above requests in the scheduler: cards and queues count the request, the container's environment the limit."""

from __future__ import annotations

from typing import Any

import pytest

from allocation import names
from allocation.inventory import Card, NodeInventory
from allocation.quota import UNLIMITED, Burst
from allocation.settings import AllocationSettings
from allocation.steps import finish
from cli.explain import explanation_tables
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.binding.binder import allocation_annotations
from scheduler.binding.plugin_binder import handshake
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import forget, schedule

NAMESPACE = "default"
CORES, MEMORY = "nvidia.com/gpucores", "nvidia.com/gpumem"


def limited(name: str, text: str = '{"main":{"gpucores":60}}', *, cores: int = 30, **more: Any) -> Pod:
    """Return a pod that requests 100 MiB and some percent of a card, with limits."""
    amounts = {"nvidia.com/gpu": "1", MEMORY: "100", CORES: str(cores)}
    annotations = {names.LIMITS: text, **more.pop("annotations", {})}
    containers = [{"name": "main", "resources": {"limits": amounts}}]
    return pod(name, containers=containers, annotations=annotations, **more)


def placed(made: ClusterState, created: Pod) -> Scheduled:
    """Schedule a pod, which must fit."""
    result = finish(schedule(made, created))
    assert isinstance(result, Scheduled), result
    return result


def bound(made: ClusterState, created: Pod) -> Pod:
    """Schedule a pod, and return it as the API server has it after its Binding."""
    result = placed(made, created)
    annotations = {**created.metadata.annotations, **allocation_annotations(result, unix_seconds=0)}
    return limited(created.metadata.name, node=result.node, phase="Running", annotations=annotations)


def test_requests_fill_a_card_and_limits_pass_it() -> None:
    """Three pods of 30 % that may each use 60 % fit on one card, and a fourth does not."""
    made = state("n1", cards=1)
    results = [placed(made, limited(name)) for name in "abc"]
    assert isinstance(finish(schedule(made, limited("d"))), Unschedulable)
    for result in results:
        written = allocation_annotations(result, unix_seconds=0)
        assert written["cuda-device-sm-limit.gpu.scheduling/main"] == "60"
        assert written[names.HAMI_ALLOCATED] == "GPU-n1-0,NVIDIA,100,30:;"
        assert [(each.cores, each.burst_cores) for each in result.charges] == [(300, 300)]


def test_pods_that_differ_in_their_limits_only_get_their_own() -> None:
    """They share what is remembered of where they fit; pods without limits have none."""
    made = state("n1", cards=1)
    for name, text, percent in (
        ("a", '{"main":{"gpucores":60}}', 600),
        ("b", '{"main":{"gpucores":90}}', 900),
        ("c", "{}", 0),
    ):
        allocation = placed(made, limited(name, text)).allocation
        assert allocation is not None
        assert allocation.containers["main"][0].cores_limit == percent


def test_a_restart_counts_the_same() -> None:
    """All of it is in the pod's allocation, whatever becomes of the annotation of its user."""
    made = state("n1", cards=1)
    running = bound(made, limited("a"))
    made.set_pod(running)
    (before,) = made.ledger.reservations("n1")
    other = state("n1", cards=1)
    del running.metadata.annotations[names.LIMITS]
    other.set_pod(running)
    (after,) = other.ledger.reservations("n1")
    assert after.charges == before.charges
    assert after.charges[0].burst_cores == 300


def test_the_memory_limit_is_at_most_the_card() -> None:
    """Nothing can use more; and only where the configuration permits limits of memory."""
    text = '{"main":{"gpumem":5000}}'
    made = state("n1", settings=AllocationSettings(memory_bursting=True))
    allocation = placed(made, limited("a", text)).allocation
    assert allocation is not None
    assert allocation.containers["main"][0].memory_limit_mib == 1000
    refused = finish(schedule(state("n1"), limited("a", text)))
    assert isinstance(refused, Unschedulable)
    assert refused.is_held
    assert "allocation.memory_bursting" in refused.note


def test_limits_of_a_namespace_count_limits_and_requests_count_requests() -> None:
    """Of what runs and of what waits; the message counts what the pod may use as requested."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota("q", total={"limits": {CORES: 130}, "requests": {CORES: 100}}))
    placed(made, limited("a"))
    limits, requests = made.quotas.headrooms(NAMESPACE)
    assert (limits.cores, requests.cores) == (700, 700)
    assert made.quotas.headroom(NAMESPACE, burst=Burst(cores=300)).cores == 400
    placed(made, limited("b"))
    waits = finish(schedule(made, limited("c")))
    assert isinstance(waits, Unschedulable)
    assert f"GpuQuota q limits {CORES} to 130: 120 used, 60 requested" in waits.note
    placed(made, limited("d", "{}", cores=10))
    waits = finish(schedule(made, limited("e", "{}", cores=40)))
    assert isinstance(waits, Unschedulable)
    forget(made, limited("a"))
    made.limits.set_gpu_quota(gpu_quota("q", total={"requests": {CORES: 50}}))
    waits = finish(schedule(made, limited("f", cores=20)))
    assert isinstance(waits, Unschedulable)
    assert f"GpuQuota q limits requests.{CORES} to 50: 40 used, 20 requested" in waits.note
    assert made.quotas.headroom("elsewhere", burst=Burst(cores=300)) == UNLIMITED


def test_a_pod_with_limits_gets_no_mig_instance() -> None:
    """The size of an instance is fixed; the hint says so."""
    made = state()
    made.set_node(node("n0"))
    cards = (mig_card(0), instance(0, "1g.5gb", 0))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0"), status_of(NodeInventory("n0", cards))))
    explanation = explained(made, limited("a", cores=10))
    assert explanation.outcome == "waits"
    assert any("gets no MIG instance" in hint for hint in explanation.hints)
    assert placed(made, limited("b", "{}", cores=10)).charges[0].parent == "GPU-n0-0"
    both = (*cards, Card("GPU-n0-5", 5, 40960))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0"), status_of(NodeInventory("n0", both))))
    assert [each.uuid for each in placed(made, limited("c", cores=10)).charges] == ["GPU-n0-5"]


def test_hamis_plugin_gets_the_limits_and_its_other_tools_the_requests() -> None:
    """The plugin sets the limits of containers by what is to be allocated; everything else adds up what is."""
    result = placed(state("n1", cards=1), limited("a"))
    assert handshake(result, unix_seconds=0)[names.HAMI_TO_ALLOCATE] == "GPU-n1-0,NVIDIA,100,60:;"
    assert allocation_annotations(result, unix_seconds=0)[names.HAMI_ALLOCATED] == "GPU-n1-0,NVIDIA,100,30:;"


def test_an_explanation_shows_both() -> None:
    """What a waiting pod asks for, and what it would have."""
    explanation = explained(state("n1", cards=1), limited("a"))
    assert explanation_tables.requests(explanation) == "main 1 card with 100 MiB and 30% (up to 60%) of the compute"
    assert explanation_tables.of_shares(explanation).rows == [("main", "0", "GPU-n1-0", "100", "30-60")]


@pytest.mark.parametrize("text", ["{", '{"main":{"gpucores":20}}', '{"side":{"gpucores":60}}'])
def test_limits_that_admission_did_not_see_are_refused(text: str) -> None:
    """The pod is held; its annotation decides nothing."""
    made = state("n1")
    result = finish(schedule(made, limited("a", text)))
    assert isinstance(result, Unschedulable)
    assert result.is_held
    assert names.LIMITS in result.note
    assert made.requirements.headroom(limited("a", text)) == UNLIMITED


def test_an_annotation_that_is_too_long_is_not_kept() -> None:
    """Of a tenant's text the scheduler keeps a bounded part, which is enough to say that it is too long."""
    created = limited("a", "x" * 200_000)
    assert len(created.metadata.annotations[names.LIMITS]) == 4097
    result = finish(schedule(state("n1"), created))
    assert isinstance(result, Unschedulable)
    assert "at most 4096 characters" in result.note


def test_a_pod_that_its_quota_keeps_waiting_preempts_by_what_others_may_use() -> None:
    """What a victim of its namespace may use beyond its request is given back, and no more than that."""
    made = state("n1", cards=1)
    made.limits.set_gpu_quota(gpu_quota("q", total={"limits": {CORES: 60}}))
    made.set_pod(bound(made, limited("low", '{"main":{"gpucores":50}}', cores=10)))
    waiting = limited("high", '{"main":{"gpucores":60}}', cores=10, priority=10)
    shown = explained(made, waiting).preemption
    assert shown is not None
    assert [each.name for each in shown.victims] == ["low"]
    made.limits.set_gpu_quota(gpu_quota("q", total={"limits": {CORES: 59}}))
    shown = explained(made, waiting).preemption
    assert shown is None or not shown.count
