"""What a pod demands of its cards and its node comes from its claim, and without a claim from its annotations."""

from typing import Any

import msgspec
import pytest

from allocation import names
from allocation.claim import ClaimSpec
from allocation.constraints import Constraints
from allocation.fabric import FabricDemand
from allocation.settings import AllocationSettings, TopologySettings
from allocation.topology.demand import TopologyDemand
from cluster.gpu_claim import GpuClaim
from scheduler import gpu_requirements
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod
from tests.scheduler.support.claims import claim, claiming

TENSORFUSION = {names.REQUIRE_TOPOLOGY: "true", names.TOPOLOGY_MAX_TIER: "0", names.TOPOLOGY_SOURCE: "numa"}
TOPOLOGY_AWARE = {names.CARD_POLICY: "topology-aware"}


def constraints(of: Pod, given: GpuClaim | None = None, settings: AllocationSettings | None = None) -> Constraints:
    """Return the constraints of a pod, which may name a claim."""

    def find_claim(_: str) -> ClaimSpec | None:
        return given and given.spec

    read = gpu_requirements.read(
        of.spec, of.metadata.annotations, settings or AllocationSettings(), find_claim=find_claim
    )
    return read.constraints


def with_spec(given: GpuClaim, **fields: Any) -> GpuClaim:
    """Return a claim with other fields of its `spec`, as users write them."""
    written = {**msgspec.to_builtins(given.spec), **fields}
    return msgspec.structs.replace(given, spec=msgspec.convert(written, ClaimSpec))


@pytest.mark.parametrize("annotations", [{}, TOPOLOGY_AWARE, TENSORFUSION, {**TENSORFUSION, **TOPOLOGY_AWARE}])
def test_the_claim_decides_about_connections_whatever_annotations_say(annotations: dict[str, str]) -> None:
    """Even a claim that states nothing of them: it has defaults."""
    plain = claim("c", count=2)
    assert constraints(claiming("a", plain, annotations=annotations), plain).topology == TopologyDemand()
    strict = with_spec(claim("c", policy="spread"), topology={"mode": "Required", "minBandwidthGBps": 50})
    demand = TopologyDemand(policy="spread", mode="Required", min_bandwidth_gbps=50)
    assert constraints(claiming("a", strict, annotations=annotations), strict).topology == demand


def test_instances_have_no_connections() -> None:
    """Nothing is demanded of them, whatever annotations say; what the claim says of their node still holds."""
    given = with_spec(claim("c", exclusivity="MIG"), network={"rdmaRequired": True})
    found = constraints(claiming("a", given, annotations=TENSORFUSION), given)
    assert (found.card_kind, found.topology) == ("instance", None)
    assert found.fabric == FabricDemand(min_ports=1, asks_network=True)


def test_a_claim_demands_network_and_storage_only_if_it_says_so() -> None:
    """Most claims do not."""
    plain = claim("c")
    assert constraints(claiming("a", plain), plain).fabric is None
    stores = with_spec(plain, storage={"cuFile": "Required"})
    assert constraints(claiming("a", stores), stores).fabric == FabricDemand(cu_file="Required")


def test_annotations_decide_without_a_claim() -> None:
    """The more precise ones first."""
    required = TopologyDemand(mode="Required", max_tier=0, source="numa")
    assert constraints(pod("a", memory=100)).topology is None
    assert constraints(pod("a", memory=100, annotations=TOPOLOGY_AWARE)).topology == TopologyDemand(policy="linked")
    assert constraints(pod("a", memory=100, annotations={**TENSORFUSION, **TOPOLOGY_AWARE})).topology == required
    assert constraints(pod("a", memory=100, annotations=TENSORFUSION)).fabric is None


def test_the_setting_is_for_claims_and_annotations() -> None:
    """`reject` refuses cards whose connection is not known."""
    settings = AllocationSettings(topology=TopologySettings(unknown="reject"))
    given = claim("c")
    for found in (
        constraints(claiming("a", given), given, settings),
        constraints(pod("a", memory=100, annotations=TENSORFUSION), settings=settings),
    ):
        assert found.topology is not None
        assert not found.topology.accepts_unknown
