"""What a pod demands of its node's fabric: rejection, preference and environment."""

from itertools import permutations, product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fabric import (
    NO_FABRIC,
    CuFile,
    Fabric,
    FabricDemand,
    Hca,
    HcaPort,
    PortState,
    environment,
    preference,
    rejection,
    variables,
)

STATES: tuple[PortState, ...] = ("Active", "Armed", "Initializing", "Down")
NAMES = tuple(f"mlx5_{number}" for number in range(12))
NETWORK, STORAGE = FabricDemand(asks_network=True), FabricDemand(cu_file="Required")
ports = st.lists(st.builds(HcaPort, st.integers(1, 8), st.sampled_from(STATES)), max_size=4).map(tuple)
hcas = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.tuples(*(st.builds(Hca, st.just(name), ports=ports, gpu_direct=st.booleans()) for name in names))
)
fabrics = st.builds(Fabric, hcas, st.builds(CuFile, st.booleans()))
demands = st.builds(
    FabricDemand,
    st.integers(0, 8),
    st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
    st.sampled_from((None, "Required", "Preferred")),
    st.booleans(),
)


def hca(name: str, *states: PortState, gpu_direct: bool = False) -> Hca:
    """Return an adapter with a port of each of these states."""
    return Hca(
        name, ports=tuple(HcaPort(number, state) for number, state in enumerate(states, 1)), gpu_direct=gpu_direct
    )


A, B = hca("a", "Active"), hca("b", "Active")


@pytest.mark.parametrize(
    ("demand", "fabric", "words"),
    [
        (FabricDemand(), NO_FABRIC, ""),
        (FabricDemand(min_ports=2), NO_FABRIC, "claim needs 2 RDMA ports, node has 0"),
        (FabricDemand(min_ports=1), Fabric((hca("a", "Down", "Armed"),)), "claim needs 1 RDMA port, node has 0"),
        (FabricDemand(min_ports=2), Fabric((A, B)), ""),
        (FabricDemand(preferred_hcas=("a",)), NO_FABRIC, ""),
        (STORAGE, NO_FABRIC, "claim needs GPUDirect Storage, which the node does not have"),
        (STORAGE, Fabric(cu_file=CuFile(enabled=True)), ""),
        (FabricDemand(cu_file="Preferred"), NO_FABRIC, ""),
    ],
)
def test_node_without_what_the_claim_requires_is_rejected_in_words(
    demand: FabricDemand, fabric: Fabric, words: str
) -> None:
    """Only active ports count, and a preference rejects no node."""
    assert rejection(demand, fabric) == words


@given(demands, fabrics)
def test_only_missing_ports_and_required_storage_reject(demand: FabricDemand, fabric: Fabric) -> None:
    """Names of adapters and GPUDirect of adapters never do."""
    active = sum(port.state == "Active" for each in fabric.hcas for port in each.ports)
    lacks_storage = demand.cu_file == "Required" and not fabric.cu_file.enabled
    assert bool(rejection(demand, fabric)) == (active < demand.min_ports or lacks_storage)


@given(demands, fabrics)
def test_preference_is_below_one(demand: FabricDemand, fabric: Fabric) -> None:
    """It never outweighs 1 GB/s between the cards."""
    assert 0 <= preference(demand, fabric) < 1


@given(fabrics)
def test_demand_without_preferences_prefers_no_node(fabric: Fabric) -> None:
    """A claim that only requires is content with any node that has it."""
    assert preference(FabricDemand(), fabric) == preference(STORAGE, fabric) == 0.0


def test_nodes_are_preferred_by_adapters_then_storage_then_spare_ports() -> None:
    """Each adapter of the list counts more than all that is named after it."""
    demand = FabricDemand(min_ports=1, preferred_hcas=("a", "b"), cu_file="Preferred", asks_network=True)
    nodes = [
        Fabric((*preferred, hca("c", *("Active",) * (count + 2 - len(preferred)))), CuFile(enabled=stores))
        for preferred in ((A, B), (A,), (B,), ())
        for stores, count in product((True, False), (9, 2, 1, 0))
    ]
    values = [preference(demand, node) for node in nodes]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)


def test_adapter_without_an_active_port_is_not_preferred() -> None:
    """A cable that is not plugged in does not make a node better."""
    demand = FabricDemand(preferred_hcas=("a",), asks_network=True)
    assert preference(demand, Fabric((hca("a", "Down"),))) == 0.0


def test_preferred_adapters_come_first_by_their_exact_names() -> None:
    """NCCL would take mlx5_1 for a prefix of mlx5_10 without the equals sign."""
    fabric = Fabric((hca("mlx5_0", "Active"), hca("mlx5_1", "Down"), hca("mlx5_10", "Active"), hca("mlx5_2", "Active")))
    demand = FabricDemand(preferred_hcas=("mlx5_2", "mlx5_1", "mlx5_10", "mlx5_7"), asks_network=True)
    assert environment(demand, fabric)["NCCL_IB_HCA"] == "=mlx5_2,mlx5_10,mlx5_0"


def test_as_many_adapters_are_named_as_nccl_uses() -> None:
    """Preferred ones are among them, wherever the node has them."""
    fabric = Fabric(tuple(hca(f"mlx5_{number}", "Active") for number in range(40)))
    demand = FabricDemand(preferred_hcas=("mlx5_39",), asks_network=True)
    named = environment(demand, fabric)["NCCL_IB_HCA"].removeprefix("=").split(",")
    assert named == ["mlx5_39", *(f"mlx5_{number}" for number in range(31))]


@pytest.mark.parametrize(
    ("fabric", "level"),
    [
        (Fabric((A, hca("b", "Active", gpu_direct=True))), "PHB"),
        (Fabric((A, hca("b", "Down", gpu_direct=True))), "LOC"),
        (NO_FABRIC, ""),
    ],
)
def test_gpu_direct_is_used_where_an_active_adapter_can(fabric: Fabric, level: str) -> None:
    """Where no adapter is reported, NCCL decides itself."""
    assert environment(NETWORK, fabric)["NCCL_NET_GDR_LEVEL"] == level


@pytest.mark.parametrize("demand", [STORAGE, FabricDemand(cu_file="Preferred")])
def test_cu_file_reads_the_configuration_of_nvidias_packages(demand: FabricDemand) -> None:
    """CUFILE_ENV_PATH_JSON is the variable that cuFile reads; it knows no CUFILE_ENV_PATH."""
    assert environment(demand, NO_FABRIC) == {"CUFILE_ENV_PATH_JSON": "/etc/cufile.json"}


@given(demands, fabrics)
def test_environment_has_exactly_the_variables_that_the_claim_asks_for(demand: FabricDemand, fabric: Fabric) -> None:
    """Admission writes the names, the Binding the values: neither may miss one of the other."""
    given_environment = environment(demand, fabric)
    assert tuple(given_environment) == variables(demand)
    assert ("NCCL_IB_HCA" in given_environment) == ("NCCL_NET_GDR_LEVEL" in given_environment) == demand.asks_network
    assert ("CUFILE_ENV_PATH_JSON" in given_environment) == (demand.cu_file is not None)


@given(demands, fabrics)
def test_every_adapter_with_an_active_port_is_named_once(demand: FabricDemand, fabric: Fabric) -> None:
    """A preference orders the adapters and leaves none out."""
    named = environment(msgspec.structs.replace(demand, asks_network=True), fabric)["NCCL_IB_HCA"]
    active = {each.name for each in fabric.hcas if each.active_ports}
    assert sorted(named.removeprefix("=").split(",") if named else []) == sorted(active)


def test_order_of_the_nodes_adapters_does_not_change_their_preference() -> None:
    """Only the claim orders adapters."""
    demand = FabricDemand(preferred_hcas=("b", "c"), asks_network=True)
    adapters = (A, B, hca("c", "Down"))
    assert len({preference(demand, Fabric(order)) for order in permutations(adapters)}) == 1
