"""What an allocation charges, whoever wrote it."""

from __future__ import annotations

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.inventory import Card
from allocation.request import PodRequest
from tests.allocation.support.mig_cards import instance


@pytest.mark.parametrize(("limit", "burst"), [(600, 0), (200, 0), (900, 300)])
def test_a_limit_that_is_no_higher_than_the_request_charges_nothing_more(limit: int, burst: int) -> None:
    """The scheduler writes no such limit, but a static allocation may have one."""
    fixed = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 600, cores_limit=limit),)})
    (charge,) = charges(fixed, PodRequest(()))
    assert (charge.cores, charge.burst_cores) == (600, burst)
    assert not fixed.at_limits().is_bursting


def test_part_of_a_card_is_the_larger_of_memory_and_compute() -> None:
    """All of a whole card, and of a MIG instance the compute of its profile."""
    card = Card("GPU-a", 0, 1000)
    assert Charge("GPU-a", 250, 100, 1).part_of(card) == 0.25
    assert Charge("GPU-a", 250, 500, 1).part_of(card) == 0.5
    assert Charge("GPU-a", 250, 0, 1, whole=True).part_of(card) == 1
    assert Charge("GPU-a", 4000, 0, 1).part_of(card) == 1
    assert Charge("GPU-a", 0, 0, 1).part_of(msgspec.structs.replace(card, memory_mib=0)) == 0
    assert Charge("GPU-a", 0, 100, 1).part_of(msgspec.structs.replace(card, cores=0)) == 0
    slice_ = instance(0, "2g.10gb", 0)
    assert Charge(slice_.uuid, slice_.memory_mib, 0, 1, whole=True).part_of(slice_) == slice_.cores / 1000 < 0.3
