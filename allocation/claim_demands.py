"""What a GpuClaim demands of the connections between its cards, and of the network and the storage of their node.

And which isolations can hold the containers of a pod to what the claim gives.
"""

from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.fabric import FabricDemand
from allocation.isolation import Isolation
from allocation.names import ISOLATION
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


def check_isolation(claim: ClaimSpec, name: str, isolation: Isolation, *, containers: int) -> None:
    """Check that an isolation can hold the GPU `containers` of a pod to what its claim gives them together.

    Raises:
        AllocationError: it cannot.
    """
    is_mig = claim.devices.exclusivity == "MIG"
    if isolation is Isolation.NONE or (is_mig and isolation is Isolation.MIG):
        return
    if is_mig or isolation is Isolation.MIG:
        given, others = ("MIG instances", "mig or none") if is_mig else ("no MIG instances", "another one")
        raise AllocationError(
            f"GpuClaim {name} gives {given}, and isolation {isolation} cannot limit what it gives: change annotation"
            f" {ISOLATION} to {others}, or name another claim"
        )
    if claim.devices.exclusivity == "Shared" and claim.devices.memory_mib is None:
        raise AllocationError(
            f"GpuClaim {name} gives cards without a limit of memory, which isolation {isolation} could enforce: name a"
            f" claim with memoryMiB, or change annotation {ISOLATION} to none"
        )
    if containers > 1 and claim.devices.exclusivity == "Shared":
        raise AllocationError(
            f"{containers} containers of the pod share GpuClaim {name}, and isolation {isolation} limits each of them"
            " by itself: together they could use more than the claim gives; give the cards to one container, or change"
            f" annotation {ISOLATION} to none"
        )
