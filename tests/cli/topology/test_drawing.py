"""The matrix of a node's cards, for machines of many kinds."""

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from allocation.inventory import Card
from allocation.names import ALLOCATION, HAMI_REGISTER, HAMI_SCORES
from allocation.topology.layout import NUMA_UNKNOWN, CardLinks
from allocation.wire import record
from cli.errors import CommandError
from cli.kube.objects import Meta, NodeMetadata, Pod
from cli.top.usage_counter import FleetObjects
from cli.topology import drawing
from cli.topology.node_topology import FleetTopology
from cli.topology.topology import named, of_objects
from cluster.gpu_node_status import Device, GpuNodeStatus, Status
from cluster.metadata import ObjectMeta
from tests.allocation.support import machines
from tests.allocation.support.mig_cards import mig_card


def status(name: str, links: tuple[CardLinks, ...], *, fabric: Fabric | None = None) -> GpuNodeStatus:
    """Return the report of an agent about a machine."""
    devices = [
        Device(
            id=each.index,
            uuid=f"GPU-{name}-{each.index}",
            memory_mib=1000,
            numa=msgspec.UNSET if each.numa == NUMA_UNKNOWN else each.numa,
            bandwidth_gbps=each.bandwidth_gbps,
            island=each.island,
            links=each.peers or msgspec.UNSET,
            pcie_groups=each.pcie or msgspec.UNSET,
        )
        for each in links
    ]
    return GpuNodeStatus(ObjectMeta(name), Status(devices, len(devices), fabric=fabric or msgspec.UNSET))


def pod(name: str, node: str, *indexes: int) -> Pod:
    """Return a pod that has cards of a node."""
    shares = tuple(CardShare(f"GPU-{node}-{index}", index, 100, 0) for index in indexes)
    annotations = {ALLOCATION: record.encode(Allocation(node, {"main": shares}))}
    made = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    return msgspec.convert(made, Pod)


def fleet(*statuses: GpuNodeStatus, pods: tuple[Pod, ...] = (), nodes: tuple[NodeMetadata, ...] = ()) -> FleetTopology:
    """Return the topology of a fleet."""
    return of_objects(FleetObjects(statuses, pods, nodes, None, 0.0))


def matrix(machine: tuple[CardLinks, ...]) -> list[list[str]]:
    """Return the cells of a machine's matrix."""
    (node,) = fleet(status("a", machine)).nodes
    return [list(row[1 : 1 + len(machine)]) for row in drawing.of_cards(node, wide=False).rows]


def test_switches_link_every_pair() -> None:
    """Each pair has the bandwidth of a card."""
    cells = matrix(machines.dgx_h100())
    assert cells[2] == ["478", "478", "X", *["478"] * 5]


def test_a_hybrid_cube_mesh_has_single_and_double_links() -> None:
    """Pairs without a link reach each other over the CPUs."""
    cells = matrix(machines.dgx1_v100())
    assert cells[0] == ["X", "25", "25", "51", "51", "SYS", "SYS", "SYS"]


def test_pairs_without_links_show_their_way_over_pcie() -> None:
    """Two cards for each switch, four for each CPU."""
    cells = matrix(machines.pcie_only())
    assert cells[0] == ["X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]


def test_numa_nodes_decide_where_pcie_is_unknown() -> None:
    """Without either, nothing is known."""
    assert matrix((CardLinks(0, 0), CardLinks(1, 0), CardLinks(2, 1), CardLinks(3)))[0] == ["X", "NODE", "SYS", "-"]


def test_a_link_without_bandwidth_is_a_link() -> None:
    """As in a fleet file that declares an island alone."""
    machine = (CardLinks(0, 0, "a"), CardLinks(1, 0, "a"))
    assert matrix(machine)[0] == ["X", "NV"]
    assert drawing.summary(fleet(status("a", machine)).nodes[0]) == "2 cards, 1 island of 2"


def test_a_card_names_the_pods_that_hold_it() -> None:
    """Two, and how many more; the wide table has all."""
    pods = tuple(pod(f"p{number}", "a", 1) for number in range(3))
    (node,) = fleet(status("a", machines.islands_2_2()), pods=pods).nodes
    assert drawing.of_cards(node, wide=False).rows[1][-1] == "team/p0,team/p1,+1 more"
    assert "team/p0,team/p1,team/p2" in drawing.of_cards(node, wide=True).rows[1]
    assert drawing.of_cards(node, wide=False).rows[0][-1] == "<none>"


def test_a_node_is_drawn_with_its_adapters() -> None:
    """The whole text of a small node."""
    ports = (HcaPort(1, "Active", 400), HcaPort(2, "Down"))
    fabric = Fabric((Hca("mlx5_0", "MT4129", ports, gpu_direct=True, numa=0),), CuFile(enabled=True, version="2.24"))
    (node,) = fleet(status("a", machines.pcie_pairs(2), fabric=fabric), pods=(pod("p", "a", 0),)).nodes
    assert drawing.text_of(node, wide=False, headers=True) == (
        "a: 2 cards, 1 island of 2, 300 GB/s between linked cards\n"
        "CARD    0    1    ISLAND    GB/S    NUMA    HEALTH    HELD-BY\n"
        "0       X    300  nvlink-0  300     0       Healthy   team/p\n"
        "1       300  X    nvlink-0  300     0       Healthy   <none>\n"
        "adapter mlx5_0 (MT4129): 1 of 2 ports active, 400 Gbit/s, InfiniBand, GPUDirect RDMA, NUMA node 0\n"
        "GPUDirect Storage 2.24\n"
    )


@pytest.mark.parametrize(
    ("machine", "row"),
    [
        (machines.dgx_h100(), ["a", "8", "8", "1x8", "478", "2", "0", "no"]),
        (machines.example_node(), ["a", "8", "8", "2x4", "64-600", "-", "0", "no"]),
        (machines.pcie_only(), ["a", "8", "8", "<none>", "0", "2", "0", "no"]),
    ],
)
def test_a_fleet_has_a_row_for_each_node(machine: tuple[CardLinks, ...], row: list[str]) -> None:
    """Islands by number and size."""
    assert drawing.of_nodes(fleet(status("a", machine))).rows == [row]


def test_hami_scores_are_links() -> None:
    """A hundred for each NVLink, of which the bandwidth is at least 25 GB/s."""
    register = '[{"id":"GPU-a","health":true,"count":1,"devmem":1},{"id":"GPU-b","index":1,"count":1,"devmem":1}]'
    scores = '[{"uuid":"GPU-a","score":{"GPU-b":220}},{"uuid":"GPU-b","score":{"GPU-a":220}}]'
    annotations = {HAMI_REGISTER: register, HAMI_SCORES: scores}
    node = NodeMetadata(Meta(name="h", uid="u", annotations=annotations))
    (found,) = fleet(nodes=(node,)).nodes
    assert [row[1:4] for row in drawing.of_cards(found, wide=False).rows] == [
        ["X", "50", "nvlink-0"],
        ["50", "X", "nvlink-0"],
    ]


def test_a_card_in_mig_mode_is_not_in_the_matrix() -> None:
    """Its instances cannot reach other cards."""
    parent = mig_card(0, node="m")
    devices = [
        Device(id=0, uuid=parent.uuid, memory_mib=1000, mode="mig", island="x", bandwidth_gbps=300),
        Device(id=1, uuid="GPU-m-1", memory_mib=1000, island="x", bandwidth_gbps=300),
    ]
    (node,) = fleet(GpuNodeStatus(ObjectMeta("m"), Status(devices, 2))).nodes
    table = drawing.of_cards(node, wide=False)
    assert list(table.headers)[:3] == ["CARD", "1", "ISLAND"]
    assert [row[1:3] for row in table.rows] == [["-", "MIG"], ["X", "<none>"]]


def test_a_wide_node_has_no_matrix() -> None:
    """More than 16 cards do not fit on a screen; the structured output has all pairs."""
    (node,) = fleet(status("a", tuple(CardLinks(index, 0, "x", 100) for index in range(20)))).nodes
    assert list(drawing.of_cards(node, wide=False).headers)[:2] == ["CARD", "ISLAND"]
    assert len(node.cards[0].connections) == 19


def test_only_healthy_cards_without_pods_are_free() -> None:
    """Of four cards one is in use and one is unhealthy."""
    report = status("a", machines.islands_2_2())
    assert report.status is not None
    report.status.devices[1].health = "Unhealthy"
    (node,) = fleet(report, pods=(pod("p", "a", 0),)).nodes
    assert drawing.of_nodes(FleetTopology((node,))).rows[0][1:3] == ["4", "2"]


def test_a_node_without_cards_is_named() -> None:
    """The message says where to look."""
    with pytest.raises(CommandError, match="node b has no cards that can be counted; 'kubectl gpu top' shows why"):
        named(fleet(status("a", machines.dgx_h100())), ["b"])


def test_cards_of_fleets_without_links_are_counted() -> None:
    """A node of one card has nothing to draw but itself."""
    one = Card("GPU-a-0", 0, 1000)
    (node,) = fleet(status("a", (CardLinks(one.index),))).nodes
    assert drawing.summary(node) == "1 card, none linked over NVLink"
