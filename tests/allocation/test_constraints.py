"""An unknown value is an error that names the valid values; quotas combine by their minimum."""

from typing import get_args

import pytest

from allocation import names
from allocation.constraints import read_constraints
from allocation.errors import InvalidFieldError
from allocation.quota import Headroom, limits
from allocation.settings import AllocationSettings, TopologySettings, UnknownTopology, Weights
from allocation.topology.demand import TopologyDemand

SETTINGS = AllocationSettings()


def test_the_settings_are_the_default() -> None:
    """Policies and weights come from the configuration if no annotation sets them."""
    settings = AllocationSettings(node_policy="spread", card_policy="binpack", weights=Weights(slot=2))
    constraints = read_constraints({}, settings)
    assert (constraints.node_policy, constraints.card_policies, constraints.weights.slot) == ("spread", ("binpack",), 2)
    assert constraints.use_uuids is None
    assert not constraints.numa_bind


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        (names.NODE_POLICY, "bestfit", "binpack, spread"),
        (names.CARD_POLICY, "bestfit", "binpack, spread, numa, mutex, topology-aware"),
        (names.CARD_POLICY, "binpack,bestfit", "topology-aware"),
        (names.CARD_POLICY, "binpack,binpack", "each once"),
        (names.NUMA_BIND, "yes", "true or false"),
        (names.MODE, "time-slicing", "hami-core, mig, mps"),
        (names.REQUIRE_TOPOLOGY, "perhaps", "true, false"),
        (names.TOPOLOGY_MAX_TIER, "4", "0, 1, 2, 3"),
        (names.TOPOLOGY_SOURCE, "guess", "auto, numa, vendor"),
        (names.WEIGHTS, "slot=1,core=1,memory=9999999999", "at most 9 digits"),
        (names.WEIGHTS, "slot=1,core=1", "slot, core and memory"),
        (names.WEIGHTS, "slot=1,core=1,memory=1,more=1", "slot, core and memory"),
        (names.WEIGHTS, "slot=1,slot=1,memory=1", "slot, core and memory"),
        (names.WEIGHTS, "slot=0,core=0,memory=0", "at least 1"),
        (names.WEIGHTS, "slot=-1,core=1,memory=1", "whole number"),
        (names.WEIGHTS, "slot=1.5,core=1,memory=1", "whole number"),
    ],
)
def test_an_unknown_value_is_an_error_with_the_valid_ones(key: str, value: str, valid: str) -> None:
    """HAMi uses a default instead, which the user does not expect."""
    with pytest.raises(InvalidFieldError) as refused:
        read_constraints({key: value}, SETTINGS)
    assert refused.value.field == f'metadata.annotations["{key}"]'
    assert value in str(refused.value)
    assert valid in str(refused.value)


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True"])
def test_numa_bind_is_a_go_boolean(value: str) -> None:
    """The values are those of strconv.ParseBool."""
    assert read_constraints({names.NUMA_BIND: value}, SETTINGS).numa_bind


LINKED = TopologyDemand(policy="linked")


@pytest.mark.parametrize("policies", ["topology-aware", "binpack,topology-aware", " topology-aware , mutex"])
def test_topology_aware_looks_for_linked_cards(policies: str) -> None:
    """It has HAMi's meaning wherever it is among the policies, and as the default of the settings."""
    assert read_constraints({names.CARD_POLICY: policies}, SETTINGS).topology == LINKED
    settings = AllocationSettings(card_policy="topology-aware")
    assert read_constraints({}, settings).topology == LINKED
    assert read_constraints({names.NODE_POLICY: "spread"}, settings).topology == LINKED


@pytest.mark.parametrize("annotations", [{}, {names.CARD_POLICY: "binpack,numa"}, {names.NUMA_BIND: "true"}])
def test_other_constraints_demand_no_connections(annotations: dict[str, str]) -> None:
    """Most pods have none, and are placed without a look at links."""
    assert read_constraints(annotations, SETTINGS).topology is None


def test_the_annotations_of_tensorfusion_come_before_topology_aware() -> None:
    """They are the more precise ones."""
    annotations = {names.CARD_POLICY: "topology-aware", names.REQUIRE_TOPOLOGY: "true"}
    constraints = read_constraints(annotations, SETTINGS)
    assert constraints.topology == TopologyDemand(mode="Required", max_tier=1)
    assert constraints.card_policies == ("topology-aware",)


def test_the_settings_say_whether_unknown_connections_can_do() -> None:
    """By default an unknown connection is taken for the worst."""
    annotations = {names.REQUIRE_TOPOLOGY: "true"}
    accepts = []
    for unknown in get_args(UnknownTopology):
        settings = AllocationSettings(topology=TopologySettings(unknown=unknown))
        topology = read_constraints(annotations, settings).topology
        accepts.append(topology is not None and topology.accepts_unknown)
    assert accepts == [True, False]
    assert SETTINGS.topology.accepts_unknown


def test_weights_can_be_in_any_order() -> None:
    """Spaces around them are ignored."""
    constraints = read_constraints({names.WEIGHTS: " memory=3 , slot=1,core=2"}, SETTINGS)
    assert constraints.weights == Weights(slot=1, core=2, memory=3)


@pytest.mark.parametrize(
    ("hards", "headroom"),
    [
        ([], Headroom()),
        ([{"limits.cpu": "1"}], Headroom()),
        ([{"limits.nvidia.com/gpumem": "3k"}], Headroom(memory_mib=3000)),
        ([{"limits.nvidia.com/gpumem": "3000"}, {"limits.nvidia.com/gpumem": "2000"}], Headroom(memory_mib=2000)),
        ([{"limits.nvidia.com/gpumem": "0"}], Headroom(memory_mib=0)),
        ([{"limits.nvidia.com/gpucores": "150"}, {"limits.nvidia.com/gpu": "3"}], Headroom(cores=1500, cards=3)),
        ([{"limits.nvidia.com/gpumem": "what"}], Headroom(memory_mib=0)),
    ],
)
def test_quotas_combine_by_their_minimum(hards: list[dict[str, str]], headroom: Headroom) -> None:
    """A limit of 0 allows nothing; a missing limit is unlimited (HAMi's rules 1.6, repaired)."""
    found = limits({str(number): hard for number, hard in enumerate(hards)}, AllocationSettings())
    assert (found.memory_mib, found.cores, found.cards) == (
        headroom.memory_mib,
        headroom.cores,
        headroom.cards,
    )
