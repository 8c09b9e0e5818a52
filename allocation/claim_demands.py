"""What a GpuClaim demands of the connections between its cards, and of the network and the storage of their node."""

from allocation.claim import ClaimSpec
from allocation.fabric import FabricDemand
from allocation.settings import AllocationSettings
from allocation.topology.demand import TopologyDemand


def topology(claim: ClaimSpec, settings: AllocationSettings) -> TopologyDemand | None:
    """Return which sets of cards a claim accepts and prefers; None for MIG instances, which cannot reach each other.

    Mode Ignore has no bandwidth and no tier, and only policy preferIds has preferred cards, whatever the claim states.
    """
    devices, stated = claim.devices, claim.topology
    if devices.exclusivity == "MIG":
        return None
    is_judged = stated.mode != "Ignore"
    return TopologyDemand(
        policy=devices.policy,
        mode=stated.mode,
        min_bandwidth_gbps=stated.min_bandwidth_gbps if is_judged else 0,
        max_tier=stated.max_tier if is_judged else None,
        prefer_ids=tuple(sorted(devices.prefer_ids)) if devices.policy == "preferIds" else (),
        accepts_unknown=settings.topology.accepts_unknown,
    )


def fabric(claim: ClaimSpec) -> FabricDemand | None:
    """Return what a claim demands of its node's network and storage; None if nothing.

    RDMA that is required needs at least one active port.
    """
    network, cu_file = claim.network, claim.storage.cu_file
    min_ports = max(network.min_ports, int(network.rdma_required))
    asks_network = min_ports > 0 or bool(network.preferred_hcas)
    if not asks_network and cu_file is None:
        return None
    return FabricDemand(min_ports, network.preferred_hcas, cu_file, asks_network)
