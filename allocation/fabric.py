"""The network adapters of a node for direct transfers (RDMA), and its direct way to storage (cuFile)."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

NCCL_IB_HCA: Final = "NCCL_IB_HCA"
NCCL_NET_GDR_LEVEL: Final = "NCCL_NET_GDR_LEVEL"
CUFILE_ENV_PATH_JSON: Final = "CUFILE_ENV_PATH_JSON"
VARIABLES: Final = (NCCL_IB_HCA, NCCL_NET_GDR_LEVEL, CUFILE_ENV_PATH_JSON)
"""The environment variables by which a container uses the adapters and the storage of its node."""

_CUFILE_CONFIGURATION: Final = "/etc/cufile.json"
"""Where NVIDIA's packages install cuFile's configuration."""
_MAX_NCCL_HCAS: Final = 32
"""The adapters that NCCL uses of its list at most."""

PortState = Literal["Active", "Armed", "Initializing", "Down"]
CuFileDemand = Literal["Required", "Preferred"]


class HcaPort(msgspec.Struct, frozen=True, rename={"rate_gbps": "rateGbps", "link_layer": "linkLayer"}):
    """One port of an adapter.

    Attributes:
        number: its number, from 1.
        state: its logical state; only an active port transfers.
        rate_gbps: Gbit/s, rounded down.
        link_layer: `InfiniBand`, or `Ethernet` for RoCE.
    """

    number: int
    state: PortState = "Active"
    rate_gbps: int = 0
    link_layer: str = "InfiniBand"


class Hca(msgspec.Struct, frozen=True, rename={"gpu_direct": "gpuDirect"}):
    """One host channel adapter: an InfiniBand or RoCE device.

    Attributes:
        name: such as `mlx5_0`, which is what NCCL_IB_HCA names.
        model: such as `MT4129`; empty if unknown.
        ports: its ports.
        gpu_direct: whether it can read and write the memory of the node's cards.
        numa: its NUMA node; -1 if unknown.
    """

    name: str
    model: str = ""
    ports: tuple[HcaPort, ...] = ()
    gpu_direct: bool = False
    numa: int = -1

    @property
    def active_ports(self) -> int:
        """The number of active ports."""
        return sum(port.state == "Active" for port in self.ports)


class CuFile(msgspec.Struct, frozen=True):
    """GPUDirect Storage on a node: whether it can be used, and its version, empty if unknown."""

    enabled: bool = False
    version: str = ""


class Fabric(msgspec.Struct, frozen=True, cache_hash=True, rename={"cu_file": "cuFile"}):
    """The adapters and the storage path of a node; nodes of one machine type have equal ones."""

    hcas: tuple[Hca, ...] = ()
    cu_file: CuFile = CuFile()

    @property
    def active_ports(self) -> int:
        """The number of active ports of all adapters."""
        return sum(hca.active_ports for hca in self.hcas)

    @property
    def active_hcas(self) -> tuple[Hca, ...]:
        """The adapters that have an active port."""
        return tuple(hca for hca in self.hcas if hca.active_ports)


NO_FABRIC = Fabric()


class FabricDemand(msgspec.Struct, frozen=True):
    """What a pod demands of its node's fabric.

    Attributes:
        min_ports: active ports that the node must have.
        preferred_hcas: names of adapters that the node should have, in order of preference.
        cu_file: whether the node must or should have GPUDirect Storage; None if the pod does not ask.
        asks_network: whether the pod asks for the network at all, so that its containers get NCCL's variables.
    """

    min_ports: int = 0
    preferred_hcas: tuple[str, ...] = ()
    cu_file: CuFileDemand | None = None
    asks_network: bool = False


def rejection(demand: FabricDemand, fabric: Fabric) -> str:
    """Return why a node with `fabric` does not take a pod with `demand`, in words; empty if it does."""
    ports = fabric.active_ports
    if ports < demand.min_ports:
        return f"claim needs {demand.min_ports} RDMA port{'s' * (demand.min_ports > 1)}, node has {ports}"
    if demand.cu_file == "Required" and not fabric.cu_file.enabled:
        return "claim needs GPUDirect Storage, which the node does not have"
    return ""


def preference(demand: FabricDemand, fabric: Fabric) -> float:
    """Return how much a pod with `demand` prefers a node with `fabric`, from 0 to less than 1.

    An adapter of the demand's list with an active port counts more than all after it in the list together, and these
    more than preferred GPUDirect Storage, then each port in addition to those required more than the next. What the
    demand does not ask for counts nothing.
    """
    active = {hca.name for hca in fabric.active_hcas}
    preferences = [name in active for name in demand.preferred_hcas]
    if demand.cu_file == "Preferred":
        preferences.append(fabric.cu_file.enabled)
    weight, preferred = 1.0, 0.0
    for is_met in preferences:
        weight /= 2
        preferred += weight * is_met
    spare = max(0, fabric.active_ports - demand.min_ports) if demand.asks_network else 0
    return preferred + weight * spare / (spare + 1)


def variables(demand: FabricDemand) -> tuple[str, ...]:
    """Return the names of the environment variables that the GPU containers of a pod with `demand` get."""
    network = (NCCL_IB_HCA, NCCL_NET_GDR_LEVEL) if demand.asks_network else ()
    storage = (CUFILE_ENV_PATH_JSON,) if demand.cu_file is not None else ()
    return (*network, *storage)


def environment(demand: FabricDemand, fabric: Fabric) -> dict[str, str]:
    """Return the values of `variables(demand)` on a node with `fabric`.

    `NCCL_IB_HCA` begins with `=`, because NCCL takes names for prefixes without it, and `mlx5_1` for `mlx5_10` too.
    Where no adapter with an active port is reported, NCCL's variables are empty, which to NCCL is the same as unset:
    it then looks for adapters itself.
    """
    hcas = tuple(_ordered(demand, fabric))
    values = {NCCL_IB_HCA: "", NCCL_NET_GDR_LEVEL: "", CUFILE_ENV_PATH_JSON: _CUFILE_CONFIGURATION}
    if hcas:
        values[NCCL_IB_HCA] = "=" + ",".join(hca.name for hca in hcas[:_MAX_NCCL_HCAS])
        values[NCCL_NET_GDR_LEVEL] = "PHB" if any(hca.gpu_direct for hca in hcas) else "LOC"
    return {name: values[name] for name in variables(demand)}


def _ordered(demand: FabricDemand, fabric: Fabric) -> Iterator[Hca]:
    """Iterate over the adapters that have an active port, the preferred ones first."""
    active = {hca.name: hca for hca in fabric.active_hcas}
    for name in demand.preferred_hcas:
        if name in active:
            yield active.pop(name)
    yield from active.values()
