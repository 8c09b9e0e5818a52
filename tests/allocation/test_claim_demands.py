"""A claim's fields become demands on the connections between its cards, and on its node's network and storage."""

from typing import Any

import msgspec
import pytest

from allocation import claim_demands
from allocation.claim import ClaimSpec
from allocation.fabric import FabricDemand
from allocation.settings import AllocationSettings, TopologySettings
from allocation.topology.demand import TopologyDemand

SETTINGS = AllocationSettings()


def spec(*, devices: dict[str, Any] | None = None, **fields: Any) -> ClaimSpec:
    """Return the spec of a claim for one card, with other fields as users write them."""
    return msgspec.convert({"devices": {"count": 1, **(devices or {})}, **fields}, ClaimSpec)


@pytest.mark.parametrize(
    ("claim", "demand"),
    [
        (spec(), TopologyDemand()),
        (spec(devices={"exclusivity": "Shared"}), TopologyDemand()),
        (spec(devices={"policy": "spread"}), TopologyDemand(policy="spread")),
        (
            spec(topology={"mode": "Required", "minBandwidthGBps": 600, "maxTier": 1}),
            TopologyDemand(mode="Required", min_bandwidth_gbps=600, max_tier=1),
        ),
        (spec(topology={"maxTier": 0}), TopologyDemand(max_tier=0)),
        (
            spec(devices={"policy": "preferIds", "preferIds": [7, 1, 3]}),
            TopologyDemand(policy="preferIds", prefer_ids=(1, 3, 7)),
        ),
        (spec(devices={"preferIds": [7, 1]}), TopologyDemand()),
        (spec(topology={"mode": "Ignore", "minBandwidthGBps": 600, "maxTier": 1}), TopologyDemand(mode="Ignore")),
        (
            spec(devices={"policy": "preferIds", "preferIds": [2]}, topology={"mode": "Ignore"}),
            TopologyDemand(policy="preferIds", mode="Ignore", prefer_ids=(2,)),
        ),
        (spec(devices={"exclusivity": "MIG"}, topology={"minBandwidthGBps": 25}), None),
    ],
)
def test_a_claim_demands_connections(claim: ClaimSpec, demand: TopologyDemand | None) -> None:
    """What has no effect in a mode or with a policy is left out, so that equal demands are equal."""
    assert claim_demands.topology(claim, SETTINGS) == demand


def test_the_setting_says_whether_unknown_connections_can_do() -> None:
    """It is the same for claims and for annotations."""
    settings = AllocationSettings(topology=TopologySettings(unknown="reject"))
    required = spec(topology={"mode": "Required"})
    assert claim_demands.topology(required, settings) == TopologyDemand(mode="Required", accepts_unknown=False)


@pytest.mark.parametrize(
    ("claim", "demand"),
    [
        (spec(), None),
        (spec(network={"rdmaRequired": False, "minPorts": 0}, storage={}), None),
        (spec(network={"rdmaRequired": True}), FabricDemand(min_ports=1, asks_network=True)),
        (spec(network={"rdmaRequired": True, "minPorts": 4}), FabricDemand(min_ports=4, asks_network=True)),
        (spec(network={"minPorts": 2}), FabricDemand(min_ports=2, asks_network=True)),
        (
            spec(network={"preferredHcas": ["mlx5_1", "mlx5_0"]}),
            FabricDemand(preferred_hcas=("mlx5_1", "mlx5_0"), asks_network=True),
        ),
        (spec(storage={"cuFile": "Required"}), FabricDemand(cu_file="Required")),
        (
            spec(devices={"exclusivity": "MIG"}, network={"minPorts": 1}, storage={"cuFile": "Preferred"}),
            FabricDemand(min_ports=1, cu_file="Preferred", asks_network=True),
        ),
    ],
)
def test_a_claim_demands_fabric(claim: ClaimSpec, demand: FabricDemand | None) -> None:
    """RDMA that is required needs a port; only a claim that asks for the network gets NCCL's variables."""
    assert claim_demands.fabric(claim) == demand
