"""TensorFusion's annotations set a demand on the connections between a pod's cards."""

import pytest

from allocation import names
from allocation.errors import InvalidFieldError
from allocation.topology.annotations import read_demand
from allocation.topology.demand import TopologyDemand


@pytest.mark.parametrize(
    ("annotations", "demand"),
    [
        ({}, None),
        ({names.REQUIRE_TOPOLOGY: " ", names.TOPOLOGY_MAX_TIER: "", names.TOPOLOGY_SOURCE: ""}, None),
        ({names.REQUIRE_TOPOLOGY: "true"}, TopologyDemand(mode="Required", max_tier=1)),
        ({names.REQUIRE_TOPOLOGY: "false"}, TopologyDemand(max_tier=1)),
        ({names.TOPOLOGY_MAX_TIER: "0"}, TopologyDemand(max_tier=0)),
        ({names.TOPOLOGY_SOURCE: "numa"}, TopologyDemand(max_tier=1, source="numa")),
        (
            {names.REQUIRE_TOPOLOGY: "true", names.TOPOLOGY_MAX_TIER: "3", names.TOPOLOGY_SOURCE: "vendor"},
            TopologyDemand(mode="Required", max_tier=3),
        ),
        ({names.REQUIRE_TOPOLOGY: "true", names.TOPOLOGY_SOURCE: "auto"}, TopologyDemand(mode="Required", max_tier=1)),
    ],
)
def test_any_of_the_annotations_sets_a_demand(annotations: dict[str, str], demand: TopologyDemand | None) -> None:
    """What it leaves open has TensorFusion's defaults: preferred, tier 1, from links and then NUMA nodes."""
    assert read_demand(annotations, accepts_unknown=True) == demand


def test_unknown_connections_are_judged_by_the_setting() -> None:
    """TensorFusion has no annotation for it either."""
    annotations = {names.REQUIRE_TOPOLOGY: "true", names.TOPOLOGY_MAX_TIER: "3"}
    demands = [read_demand(annotations, accepts_unknown=accepts) for accepts in (True, False)]
    assert [demand is not None and demand.accepts_unknown for demand in demands] == [True, False]


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        (names.REQUIRE_TOPOLOGY, "yes", "true, false"),
        (names.REQUIRE_TOPOLOGY, "True", "true, false"),
        (names.TOPOLOGY_MAX_TIER, "4", "0, 1, 2, 3"),
        (names.TOPOLOGY_MAX_TIER, "-1", "0, 1, 2, 3"),
        (names.TOPOLOGY_MAX_TIER, "1 or 2", "0, 1, 2, 3"),
        (names.TOPOLOGY_MAX_TIER, "01", "0, 1, 2, 3"),
        (names.TOPOLOGY_SOURCE, "NUMA", "auto, numa, vendor"),
    ],
)
def test_an_unreadable_value_is_an_error_with_the_valid_ones(key: str, value: str, valid: str) -> None:
    """TensorFusion uses its default instead, so that cards that belong apart would be taken for what was required."""
    with pytest.raises(InvalidFieldError) as refused:
        read_demand({key: value}, accepts_unknown=True)
    assert str(refused.value) == (
        f'metadata.annotations["{key}"] holds {value!r}: it must be one of {valid}; change it, or remove it'
    )
