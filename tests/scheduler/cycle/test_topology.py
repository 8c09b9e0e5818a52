"""Pods that demand connections, by a claim or by annotations, get cards that are connected so, or wait."""

from typing import Any

import pytest

from allocation import names
from allocation.inventory import Card, NodeInventory
from allocation.steps import finish
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.scheduling import schedule

TENSORFUSION = {names.REQUIRE_TOPOLOGY: "true"}
LINKED = {names.CARD_POLICY: "topology-aware"}


def cluster(*, used: tuple[int, ...] = (), numa: tuple[int, ...] = (0, 0, 0, 0, 1, 1)) -> ClusterState:
    """Return a cluster of one node with islands of cards 0 to 2 and 3 to 5 at 300 and 25 GB/s; some cards are used."""
    made = state()
    made.set_node(node("n0"))
    cards = tuple(Card(f"GPU-{index}", index, 1000, numa=numa[index]) for index in range(6))
    report = status_of(NodeInventory("n0", cards))
    for device in report.devices:
        is_fast = device.id < 3
        device.island, device.bandwidth_gbps = ("fast", 300) if is_fast else ("slow", 25)
        if device.id in used:
            device.health = "Unhealthy"
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0"), report))
    return made


def cards(made: ClusterState, wanted: Pod, given: GpuClaim | None = None) -> tuple[int, ...] | str:
    """Return the indexes of the cards that a pod gets, or why it waits."""
    if given is not None:
        made.set_claim(given)
    result = finish(schedule(made, wanted))
    if isinstance(result, Unschedulable):
        return result.note
    assert isinstance(result, Scheduled)
    assert result.allocation is not None
    return result.allocation.indexes()


def placed(made: ClusterState, *, topology: dict[str, Any] | None = None, **devices: Any) -> tuple[int, ...] | str:
    """Return what a pod gets by a claim with these fields."""
    given = claim("c", topology=topology, **devices)
    return cards(made, claiming("a", given), given)


def whole(count: int, annotations: dict[str, str]) -> Pod:
    """Return a pod that requests whole cards."""
    limits = {"nvidia.com/gpu": str(count)}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return pod("a", annotations=annotations, containers=containers)


@pytest.mark.parametrize("exclusivity", ["Exclusive", "Shared"])
def test_a_claim_gets_linked_cards(exclusivity: str) -> None:
    """By default the fastest set of one island; without enough of one island it gets others."""
    assert placed(cluster(), count=3, exclusivity=exclusivity) == (0, 1, 2)
    assert placed(cluster(used=(0,)), count=3, exclusivity=exclusivity) == (3, 4, 5)
    assert placed(cluster(used=(0, 5)), count=3, exclusivity=exclusivity) == (1, 2, 3)


def test_a_required_claim_waits_with_the_reason() -> None:
    """No two islands, no slow links; a bound that can be kept is kept."""
    required = {"mode": "Required", "minBandwidthGBps": 100}
    assert placed(cluster(), topology=required, count=3) == (0, 1, 2)
    assert "CardTopologyMismatch" in placed(cluster(used=(0,)), topology=required, count=3)
    assert placed(cluster(used=(0,)), topology={"mode": "Required"}, count=3) == (3, 4, 5)
    assert "CardTopologyMismatch" in placed(cluster(), topology={"mode": "Required"}, count=4)


def test_policies_of_claims_choose_other_cards() -> None:
    """`Ignore` looks at indexes alone."""
    assert placed(cluster(), count=2, policy="spread") == (0, 5)
    assert placed(cluster(), count=2, policy="preferIds", preferIds=[4, 1]) == (1, 4)
    assert placed(cluster(used=(1, 4, 5)), count=2) == (0, 2)
    assert placed(cluster(used=(1, 4, 5)), count=2, topology={"mode": "Ignore"}) == (2, 3)


def test_tensorfusions_annotations_reject_distant_cards() -> None:
    """Tier 1, their default, means linked cards or those of one NUMA node."""
    linked = {**TENSORFUSION, names.TOPOLOGY_MAX_TIER: "0"}
    assert cards(cluster(), whole(3, TENSORFUSION)) == (0, 1, 2)
    assert cards(cluster(numa=(0,) * 6), whole(4, TENSORFUSION)) == (0, 1, 2, 3)
    assert "CardTopologyMismatch" in cards(cluster(numa=(0,) * 6), whole(4, linked))
    assert "CardTopologyMismatch" in cards(cluster(), whole(5, TENSORFUSION))
    assert cards(cluster(), whole(5, {**TENSORFUSION, names.TOPOLOGY_MAX_TIER: "2"})) == (0, 1, 2, 3, 4)


def test_tensorfusions_source_says_what_counts() -> None:
    """Links do not count with `numa`; NUMA nodes do with `vendor`, where there are no links."""
    apart = (0, 1, 0, 1, 0, 1)
    by_numa = {**TENSORFUSION, names.TOPOLOGY_SOURCE: "numa"}
    assert cards(cluster(numa=apart), whole(3, TENSORFUSION)) == (0, 1, 2)
    assert cards(cluster(numa=apart), whole(3, by_numa)) == (0, 2, 4)
    by_links = {**TENSORFUSION, names.TOPOLOGY_SOURCE: "vendor"}
    assert cards(cluster(numa=apart), whole(3, by_links)) == (0, 1, 2)
    assert cards(cluster(numa=(0,) * 6), whole(4, by_links)) == (0, 1, 2, 3)


def test_preferred_annotations_reject_nothing() -> None:
    """Without `require-gpu-topology: "true"` the best set that is free is given."""
    assert cards(cluster(), whole(5, {names.TOPOLOGY_MAX_TIER: "0"})) == (0, 1, 2, 3, 4)
    assert cards(cluster(used=(0,)), whole(3, {names.REQUIRE_TOPOLOGY: "false"})) == (3, 4, 5)


def test_topology_aware_takes_the_fastest_pairs() -> None:
    """The sum over all pairs counts, not the slowest one."""
    assert cards(cluster(), whole(4, LINKED)) == (0, 1, 2, 3)
    assert cards(cluster(used=(1,)), whole(3, LINKED)) == (0, 2, 3)


def test_a_claim_comes_before_annotations() -> None:
    """They would reject what the claim accepts."""
    given = claim("c", count=5)
    assert cards(cluster(), claiming("a", given, annotations=TENSORFUSION), given) == (0, 1, 2, 3, 4)
