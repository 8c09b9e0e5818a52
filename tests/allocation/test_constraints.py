"""A word that nobody knows is refused, and the words that are known are named."""

import pytest

from allocation import names
from allocation.constraints import read_constraints
from allocation.errors import InvalidFieldError
from allocation.quota import Room, limits
from allocation.settings import AllocationSettings, Weights

SETTINGS = AllocationSettings()


def test_nothing_said_is_the_administrators_choice() -> None:
    """Policies and weights of the configuration."""
    settings = AllocationSettings(node_policy="spread", card_policy="binpack", weights=Weights(slot=2))
    found = read_constraints({}, settings)
    assert (found.node_policy, found.card_policies, found.weights.slot) == ("spread", ("binpack",), 2)
    assert found.use_uuids is None
    assert not found.numa_bind


@pytest.mark.parametrize(
    ("key", "value", "names_"),
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
def test_an_unknown_word_is_refused(key: str, value: str, names_: str) -> None:
    """HAMi takes some default instead, and the pod goes where nobody expected it."""
    with pytest.raises(InvalidFieldError) as refused:
        read_constraints({key: value}, SETTINGS)
    assert refused.value.field == f'metadata.annotations["{key}"]'
    assert value in str(refused.value)
    assert names_ in str(refused.value)


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True"])
def test_a_go_boolean_is_read(value: str) -> None:
    """As strconv.ParseBool does."""
    assert read_constraints({names.NUMA_BIND: value}, SETTINGS).numa_bind


def test_weights_may_stand_in_any_order() -> None:
    """With spaces, too."""
    found = read_constraints({names.WEIGHTS: " memory=3 , slot=1,core=2"}, SETTINGS)
    assert found.weights == Weights(slot=1, core=2, memory=3)


@pytest.mark.parametrize(
    ("hards", "room"),
    [
        ([], Room()),
        ([{"limits.cpu": "1"}], Room()),
        ([{"limits.nvidia.com/gpumem": "3k"}], Room(memory_mib=3000)),
        ([{"limits.nvidia.com/gpumem": "3000"}, {"limits.nvidia.com/gpumem": "2000"}], Room(memory_mib=2000)),
        ([{"limits.nvidia.com/gpumem": "0"}], Room(memory_mib=0)),
        ([{"limits.nvidia.com/gpucores": "150"}, {"limits.nvidia.com/gpu": "3"}], Room(cores=1500, cards=3)),
        ([{"limits.nvidia.com/gpumem": "what"}], Room(memory_mib=0)),
    ],
)
def test_quotas_combine_by_their_minimum(hards: list[dict[str, str]], room: Room) -> None:
    """Several objects of a namespace; an explicit 0 allows nothing; absent is unlimited (hami.md 1.6, repaired)."""
    assert limits(hards, AllocationSettings()) == room
