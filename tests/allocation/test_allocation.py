"""What an allocation charges, whoever wrote it."""

from __future__ import annotations

import pytest

from allocation.allocation import Allocation, CardShare, charges
from allocation.request import PodRequest


@pytest.mark.parametrize(("limit", "burst"), [(600, 0), (200, 0), (900, 300)])
def test_a_limit_that_is_no_higher_than_the_request_charges_nothing_more(limit: int, burst: int) -> None:
    """The scheduler writes no such limit, but a static allocation may have one."""
    fixed = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 600, cores_limit=limit),)})
    (charge,) = charges(fixed, PodRequest(()))
    assert (charge.cores, charge.burst_cores) == (600, burst)
    assert not fixed.at_limits().is_bursting
