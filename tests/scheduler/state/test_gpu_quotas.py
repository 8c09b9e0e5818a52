"""GpuQuotas in the scheduler: the smallest headroom counts, and use does not depend on the quota objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.bindings.binding import ShareMode
from allocation.fairness.quota_spec import QuotaSpec
from allocation.inventory import Card, NodeInventory
from allocation.quota import UNLIMITED
from allocation.reasons import PodReason
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from cluster.resource_quota import ResourceQuota
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.app_pods import app_pod, gpu_binding
from tests.scheduler.support.app_pods import settings as app_settings
from tests.scheduler.support.builders import allocated, pod, state, status
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import forget, schedule

NAMESPACE = "default"


def resource_quota(**hard: str) -> ResourceQuota:
    """Return a ResourceQuota with `limits.nvidia.com/` keys."""
    keys = {f"limits.nvidia.com/{key}": amount for key, amount in hard.items()}
    return msgspec.convert(
        {"metadata": {"name": "rq", "namespace": NAMESPACE, "uid": "u"}, "spec": {"hard": keys}}, ResourceQuota
    )


def with_cores(name: str, percent: int) -> Pod:
    """Return a pod that requests a percentage of a card."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1", "nvidia.com/gpucores": str(percent)}
    return pod(name, containers=[{"name": "main", "resources": {"limits": limits}}])


def test_the_smallest_of_all_quotas_counts_and_is_named() -> None:
    """Two GpuQuotas and a ResourceQuota limit one namespace, each in another resource."""
    made = state("n1")
    made.limits.set_quota(resource_quota(gpumem="900", gpu="9"))
    made.limits.set_gpu_quota(gpu_quota("a", total={"limits": {"nvidia.com/gpumem": 800, "nvidia.com/gpucores": 60}}))
    made.limits.set_gpu_quota(gpu_quota("b", total={"limits": {"nvidia.com/gpumem": 850, "nvidia.com/gpucores": 50}}))
    headroom = made.quotas.headroom(NAMESPACE)
    assert (headroom.memory_mib, headroom.cores, headroom.cards) == (800, 500, 9)
    assert [(limit.kind, limit.name) for limit in headroom.limits if limit is not None] == [
        ("GpuQuota", "a"),
        ("GpuQuota", "b"),
        ("ResourceQuota", "rq"),
    ]
    assert made.quotas.headroom("elsewhere") == UNLIMITED


@pytest.mark.parametrize(("limits", "fits"), [({}, True), ({"nvidia.com/gpumem": 0}, False)])
def test_0_is_none_and_a_missing_limit_is_unlimited(limits: dict[str, int], *, fits: bool) -> None:
    """D10."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota(total={"limits": limits}))
    assert isinstance(finish(schedule(made, pod("p", memory=100))), Scheduled) is fits


def test_a_quota_that_is_created_late_is_right_at_once() -> None:
    """The sums follow the pods, not the quotas; assumed pods count."""
    made = state("n1")
    for name in ("a", "b"):
        assert isinstance(finish(schedule(made, pod(name, memory=300))), Scheduled)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 700}}))
    assert made.quotas.headroom(NAMESPACE).memory_mib == 100
    refused = finish(schedule(made, pod("c", memory=101)))
    assert isinstance(refused, Unschedulable)
    assert "GpuQuota q limits nvidia.com/gpumem to 700: 600 used, 101 requested" in refused.note
    assert isinstance(finish(schedule(made, pod("d", memory=100))), Scheduled)


def test_half_cards_add_up_exactly() -> None:
    """Two containers' 50 percent each are one card's cores, not more (row 64)."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpucores": 100}}))
    for name in ("a", "b"):
        assert isinstance(finish(schedule(made, with_cores(name, 50))), Scheduled)
    assert isinstance(finish(schedule(made, with_cores("c", 1))), Unschedulable)


def test_the_last_pod_that_max_pods_allows_is_placed_and_no_other() -> None:
    """Pods without a GPU do not count."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota("few", total={"maxPods": 2}))
    assert made.quotas.pods_left(NAMESPACE) == 2
    for name in ("a", "b"):
        assert isinstance(finish(schedule(made, pod(name, memory=1))), Scheduled)
    refused = finish(schedule(made, pod("c", memory=1)))
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {PodReason.PodQuotaNotFit}
    assert "GpuQuota few" in refused.note
    assert made.quotas.pods_left(NAMESPACE) == 0
    made.drop_pod(pod("a", memory=1))
    assert isinstance(finish(schedule(made, pod("d", memory=1))), Scheduled)


def test_pod_that_was_not_bound_does_not_count_for_max_pods() -> None:
    """It is scheduled again, and so is another pod in its place."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota("one", total={"maxPods": 1}))
    for name in ("a", "a", "b"):
        assert isinstance(finish(schedule(made, pod(name, memory=1))), Scheduled)
        forget(made, pod(name, memory=1))
    assert made.quotas.pods_left(NAMESPACE) == 1


RUNNING = st.tuples(st.integers(0, 5), st.sampled_from(["default", "other"]), st.integers(1, 300), st.booleans())


@given(st.lists(RUNNING, max_size=30))
def test_the_sums_equal_a_recount(changes: list[tuple[int, str, int, bool]]) -> None:
    """After any sequence of pods that come, change and go, they are those of a scheduler that starts then."""
    made, live = state("n1"), dict[str, Pod]()
    for number, space, memory, ends in changes:
        name = f"{space}-{number}"
        if ends and name in live:
            made.drop_pod(live.pop(name))
        else:
            new = allocated(name, node="n1", memory=memory, card=number % 2, namespace=space)
            made.set_pod(new, live.get(name))
            live[name] = new
    again = state("n1")
    for each in live.values():
        again.set_pod(each)
    for space in ("default", "other"):
        assert made.quotas.use(space) == again.quotas.use(space)
        own = [each for each in live.values() if each.metadata.namespace == space]
        assert made.quotas.use(space).pods == len(own)


def test_a_dropped_quota_limits_nothing() -> None:
    """The other quotas of the namespace stay."""
    made, gone = state("n1"), gpu_quota("gone", total={"maxPods": 0, "limits": {"nvidia.com/gpu": 0}})
    made.limits.set_gpu_quota(gone)
    made.limits.set_gpu_quota(gpu_quota("stays", total={"limits": {"nvidia.com/gpu": 1}}))
    made.limits.drop_gpu_quota(gone)
    assert made.quotas.headroom(NAMESPACE).cards == 1
    assert made.quotas.pods_left(NAMESPACE) is None
    assert [*made.quotas.specs(NAMESPACE)] == ["stays"]


def test_only_a_new_spec_is_a_change() -> None:
    """The scheduler's own writes of the status wake no pod."""
    made = state("n1")
    assert made.quotas.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    assert not made.quotas.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    assert isinstance(gpu_quota().spec, QuotaSpec)


@pytest.mark.parametrize(
    ("requests", "fits"),
    [
        ({"gpumem": "500"}, True),
        ({"gpumem": "501"}, False),
        ({"gpumem-percentage": "50"}, True),
        ({"gpumem-percentage": "51"}, False),
        ({"gpumem": "1", "gpucores": "30"}, True),
        ({"gpumem": "1", "gpucores": "31"}, False),
        ({"gpumem": "1", "gpu": "2"}, True),
        ({"gpumem": "1", "gpu": "3"}, False),
    ],
)
def test_a_single_pod_may_have_the_maximum_and_no_more(requests: dict[str, str], *, fits: bool) -> None:
    """Row 63; a percentage counts as that of the largest card, of 1,000 MiB. Nobody's leaving would help."""
    made = state("n1", cards=3)
    single = {"limits": {"nvidia.com/gpumem": 500, "nvidia.com/gpucores": 30}, "maxCards": 2}
    made.limits.set_gpu_quota(gpu_quota("tight", single=single))
    limits = {f"nvidia.com/{key}": amount for key, amount in {"gpu": "1", "gpucores": "1", **requests}.items()}
    result = finish(schedule(made, pod("p", containers=[{"name": "main", "resources": {"limits": limits}}])))
    assert isinstance(result, Scheduled) is fits
    if isinstance(result, Unschedulable):
        assert result.reasons == {PodReason.QuotaSingleExceeded}
        assert "GpuQuota tight" in result.note


@pytest.mark.parametrize("by", ["GpuQuota", "ResourceQuota", "GpuQueue"])
def test_pod_that_leaves_out_a_limited_amount_waits(by: str) -> None:
    """Nothing would limit its container. It is tried again when the limit changes."""
    made = state("n1")
    match by:
        case "GpuQuota":
            made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpucores": 500}}))
        case "ResourceQuota":
            made.limits.set_quota(resource_quota(gpucores="500"))
        case _:
            made.limits.set_queue(gpu_queue("q", namespaceSelector={}, limits={"nvidia.com/gpucores": 500}))
    labels = {"gpu.scheduling/queue": "q"} if by == "GpuQueue" else {}
    waiting = pod("p", memory=100, labels=labels)
    result = finish(schedule(made, waiting))
    assert isinstance(result, Unschedulable)
    assert result.reasons == {PodReason.AmountNotStated}
    assert f"{by} " in result.note
    assert "container main requests none, so nothing would limit it" in result.note
    assert isinstance(finish(schedule(made, with_cores("q", 1))), Scheduled)


def test_limit_that_is_named_does_not_depend_on_what_other_pods_hold() -> None:
    """The smallest one is, although less is left of the other."""
    made = state("n1")
    made.limits.set_gpu_quota(gpu_quota("small", total={"limits": {"nvidia.com/gpucores": 50}}))
    made.limits.set_queue(gpu_queue("large", namespaceSelector={}, limits={"nvidia.com/gpucores": 100}))
    labels = {"gpu.scheduling/queue": "large"}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1", "nvidia.com/gpucores": "90"}
    other = pod("o", namespace="other", labels=labels, containers=[{"name": "main", "resources": {"limits": limits}}])
    assert isinstance(finish(schedule(made, other)), Scheduled)
    result = finish(schedule(made, pod("p", memory=1, labels=labels)))
    assert isinstance(result, Unschedulable)
    assert "GpuQuota small limits nvidia.com/gpucores, and container main requests none" in result.note


# ---- with GPUBindings ----------------------------------------------------------------------------------------------


def bound_state(quota: Mapping[str, Any], *modes: ShareMode, memory: str = "600") -> ClusterState:
    """Return the state of a node with two cards, both bound to an app, in a namespace with a quota."""
    made = state("n1", settings=app_settings())
    share_modes = {f"GPU-n1-{index}": mode for index, mode in enumerate(modes)}
    made.bindings.set_share_modes("n1", share_modes)
    for uuid in share_modes:
        made.bindings.set(gpu_binding(f"b-{uuid}".lower(), uuid, memory=memory))
    made.limits.set_gpu_quota(gpu_quota(**quota))
    return made


def test_single_limits_count_for_what_bindings_give() -> None:
    """Two cards where one is requested, and 600 MiB where 100 are: one pod may not have that."""
    slices: tuple[ShareMode, ShareMode] = ("memory-slicing", "memory-slicing")
    for single, policy, words in (
        ({"maxCards": 1}, "all", "spec.single.maxCards is 1, and the pod requests 2"),
        ({"limits": {"nvidia.com/gpumem": 599}}, "single", "requests 600 of each card"),
    ):
        waits = finish(schedule(bound_state({"single": single}, *slices), app_pod("a", policy=policy)))
        assert isinstance(waits, Unschedulable)
        assert waits.reasons == {PodReason.QuotaSingleExceeded}
        assert words in waits.note
    allowed = {"single": {"maxCards": 1, "limits": {"nvidia.com/gpumem": 600}}}
    made = bound_state(allowed, *slices)
    assert isinstance(finish(schedule(made, app_pod("a", policy="single"))), Scheduled)


def test_exclusive_card_is_compared_with_its_own_memory() -> None:
    """The whole card, of 1000 MiB, whatever the cluster's largest is."""
    for most, fits in ((1000, True), (999, False)):
        made = bound_state({"single": {"limits": {"nvidia.com/gpumem": most}}}, "exclusive")
        made.agent_reports.set(status("n2", memory=9000))
        assert isinstance(finish(schedule(made, app_pod("a"))), Scheduled) is fits


def test_exclusive_card_is_not_compared_with_the_memory_of_another_one_of_its_node() -> None:
    """The pod may have the card of 1000 MiB, and not the one of 2000."""
    made = bound_state({"single": {"limits": {"nvidia.com/gpumem": 1500}}}, "exclusive", "exclusive")
    cards = (Card("GPU-n1-0", 0, 2000, slots=4), Card("GPU-n1-1", 1, 1000, slots=4))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards))))
    result = finish(schedule(made, app_pod("a", policy="single")))
    assert isinstance(result, Scheduled)
    assert result.allocation is not None
    assert [share.uuid for share in result.allocation.containers["main"]] == ["GPU-n1-1"]


def test_instances_of_a_bound_card_limit_what_a_pod_does_not_state() -> None:
    """A pod that states no cores may have an instance, and no part of a card, where a quota limits cores."""
    for cards, fits in (((mig_card(0, node="n1"), instance(0, "3g.20gb", 0, node="n1")), True), ((), False)):
        made = bound_state({"single": {"limits": {"nvidia.com/gpucores": 50}}}, "time-slicing")
        if cards:
            made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards))))
        assert isinstance(finish(schedule(made, app_pod("a"))), Scheduled) is fits


def test_card_that_nothing_limits_is_left_out() -> None:
    """A time-sliced card gives all its memory. Of two cards the pod gets the one whose memory is limited."""
    quota = {"total": {"limits": {"nvidia.com/gpumem": 10_000}}}
    waits = finish(schedule(bound_state(quota, "time-slicing"), app_pod("a")))
    assert isinstance(waits, Unschedulable)
    assert waits.reasons == {PodReason.AmountNotStated}
    made = bound_state(quota, "time-slicing", "memory-slicing")
    result = finish(schedule(made, app_pod("a", policy="single")))
    assert isinstance(result, Scheduled)
    assert result.allocation is not None
    assert [share.uuid for share in result.allocation.containers["main"]] == ["GPU-n1-1"]
    assert isinstance(finish(schedule(made, app_pod("b", policy="all"))), Unschedulable)


def test_message_of_a_total_has_what_a_binding_gives() -> None:
    """Not the 100 MiB that the pod requests."""
    quota = {"total": {"limits": {"nvidia.com/gpumem": 599}}}
    waits = finish(schedule(bound_state(quota, "memory-slicing"), app_pod("a")))
    assert isinstance(waits, Unschedulable)
    assert "limits nvidia.com/gpumem to 599: 0 used, 600 requested" in waits.note
