"""Nodes whose cards are connected like those of recorded machines, and pods that demand connections."""

from collections.abc import Collection, Sequence

import msgspec

from allocation.claim import ClaimTopology
from allocation.topology.layout import NUMA_UNKNOWN, CardLinks
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import HEALTHY, UNHEALTHY, Device, GpuNodeStatus, Status
from cluster.metadata import ObjectMeta
from scheduler.api.explanation_types import Explanation
from scheduler.api.topology_types import TopologyExplanation
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, state
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import claiming, running

Machine = tuple[CardLinks, ...]


def status(name: str, machine: Machine, *, unhealthy: Collection[int] = ()) -> GpuNodeStatus:
    """Return the report of an agent on a machine."""
    devices = [
        Device(
            id=each.index,
            uuid=f"GPU-{name}-{each.index}",
            memory_mib=1000,
            numa=msgspec.UNSET if each.numa == NUMA_UNKNOWN else each.numa,
            health=UNHEALTHY if each.index in unhealthy else HEALTHY,
            bandwidth_gbps=each.bandwidth_gbps,
            island=each.island,
            links=each.peers or msgspec.UNSET,
            pcie_groups=each.pcie or msgspec.UNSET,
        )
        for each in machine
    ]
    return GpuNodeStatus(ObjectMeta(name=name), Status(devices, len(devices)))


def cluster(machine: Machine, *taken: int, unhealthy: Collection[int] = ()) -> ClusterState:
    """Return a state with node n1, on which pods `team/holds-INDEX` have the cards `taken`."""
    made = state()
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1", machine, unhealthy=unhealthy))
    for index in taken:
        holder = gpu_claim(f"of-{index}", namespace="team")
        made.set_claim(holder)
        made.set_pod(running(f"holds-{index}", holder, node="n1", cards=[index]))
    return made


def wanted(count: int, *, prefer: Sequence[int] = (), policy: str = "", **topology: object) -> GpuClaim:
    """Return a claim for `count` whole cards with a demand on their connections."""
    policy = policy or ("preferIds" if prefer else "contiguous")
    plain = gpu_claim("wants", count=count, policy=policy, preferIds=list(prefer))
    spec = msgspec.structs.replace(plain.spec, topology=ClaimTopology(**topology))  # type: ignore[arg-type]
    return msgspec.structs.replace(plain, spec=spec)


def demanding(made: ClusterState, count: int, **demand: object) -> Pod:
    """Return a pod with such a claim, which the state has."""
    wants = wanted(count, **demand)  # type: ignore[arg-type]
    made.set_claim(wants)
    return claiming("a", wants)


def set_of(explanation: Explanation) -> TopologyExplanation:
    """Return the one explanation of a set: of the pod, or of its only node."""
    (nodes_set,) = explanation.nodes[0].topology
    if explanation.outcome == "fits":
        assert explanation.topology == (nodes_set,)
    return nodes_set
