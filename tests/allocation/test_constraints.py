"""An unknown value is an error that names the valid values; quotas combine by their minimum."""

import pytest

from allocation import names
from allocation.constraints import read_constraints
from allocation.errors import InvalidFieldError
from allocation.quota import Headroom, limits
from allocation.settings import AllocationSettings, Weights

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
    """A limit of 0 allows nothing; a missing limit is unlimited (hami.md 1.6, repaired)."""
    found = limits({str(number): hard for number, hard in enumerate(hards)}, AllocationSettings())
    assert (found.memory_mib, found.cores, found.cards) == (
        headroom.memory_mib,
        headroom.cores,
        headroom.cards,
    )
