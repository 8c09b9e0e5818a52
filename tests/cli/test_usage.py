import json
from typing import Any

import msgspec
import pytest
import yaml

from allocation import names, record
from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from cli import top, usage
from cli.objects import Pod
from cli.tables import render
from cli.usage import Amount, FleetUsage
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.reflector import ObjectMeta

UUID = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def _status(node: str = "n1", *cards: Card) -> GpuNodeStatus:
    default = (
        Card(uuid=UUID, index=0, memory_mib=40960, model="NVIDIA A100"),
        Card(uuid=f"{node}-1", index=1, memory_mib=40960, healthy=False),
    )
    return GpuNodeStatus(ObjectMeta(name=node), status_of(NodeInventory(node, cards or default)))


def _pod(name: str = "p", *, node: str = "n1", phase: str = "Running", **containers: tuple[CardShare, ...]) -> Pod:
    """Answer a pod that asks for a GPU in `main`, `init` before it, and was given `containers`."""
    annotations = {names.ALLOCATION: record.encode(Allocation(node, containers))} if containers else {}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    data: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {
            "nodeName": node,
            "initContainers": [{"name": "init", "resources": limits}],
            "containers": [{"name": "main", "resources": limits}],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(data, Pod)


def test_cards_show_what_pods_hold() -> None:
    """Memory, cores and slots are the sums over the pods that have shares, and the shares are named."""
    pods = [_pod(name, main=(CardShare(UUID, 0, 3000, 305),)) for name in ("a", "b")]
    fleet = usage.count([_status()], pods)
    card, idle = fleet.nodes[0].cards
    assert (card.memory_mib, card.cores, card.slots) == (Amount(6000, 40960), Amount(610, 1000), Amount(2, 10))
    assert [str(share) for share in card.shares] == ["team/a/main", "team/b/main"]
    assert (idle.memory_mib.used, idle.healthy, idle.shares) == (0, False, ())
    assert not fleet.nodes[0].closed


def test_a_pod_costs_its_largest_step() -> None:
    """An init container and a regular one do not run at once: the card is charged the larger, as by the scheduler."""
    pod = _pod(init=(CardShare(UUID, 0, 5000, 100),), main=(CardShare(UUID, 0, 3000, 300),))
    card = usage.count([_status()], [pod]).nodes[0].cards[0]
    assert (card.memory_mib.used, card.cores.used, card.slots.used) == (5000, 300, 1)
    assert len(card.shares) == 2


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
def test_only_live_pods_count(node: str, phase: str) -> None:
    """What waits has nothing yet, and what is finished has given it back."""
    pod = _pod(node=node, phase=phase, main=(CardShare(UUID, 0, 3000, 300),))
    assert usage.count([_status()], [pod]).nodes[0].cards[0].slots.used == 0


def test_an_uncounted_pod_closes_its_node() -> None:
    """A pod that runs on a GPU that nobody gave it is why the scheduler leaves the node alone: it is said."""
    fleet = usage.count([_status()], [_pod()])
    assert fleet.nodes[0].closed == "pod team/p runs here uncounted: it asks for a GPU and has no allocation"


def test_an_allocation_for_another_node_closes_the_node() -> None:
    """An allocation counts only where it was made."""
    pod = _pod(node="n2", main=(CardShare(UUID, 0, 3000, 300),))
    pod.spec.node_name = "n1"
    fleet = usage.count([_status()], [pod])
    assert fleet.nodes[0].closed.endswith("its allocation is for node n2")
    assert fleet.nodes[0].cards[0].slots.used == 0


def test_a_card_that_two_nodes_report_is_a_problem() -> None:
    """The second report is refused as by the scheduler, and the person is told."""
    fleet = usage.count([_status("n1"), _status("n2")], [])
    assert [node.name for node in fleet.nodes] == ["n1"]
    assert fleet.problems == (
        f"the inventory of node n2 is refused: node n2 reports card {UUID}, which node n1 has already reported",
    )


def _fleet() -> FleetUsage:
    return usage.count([_status()], [_pod(main=(CardShare(UUID, 0, 3000, 305),))])


def test_table_has_a_line_for_each_card() -> None:
    """The table is as wide as a terminal: UUIDs are cut to what tells them apart, and nothing is left blank."""
    assert render(_fleet(), top.table(_fleet()), output="table").splitlines() == [
        "NODE    CARD    UUID          MEMORY(MiB)    CORES(%)    SLOTS    HEALTH     PODS",
        "n1      0       GPU-8dcd427f  3000/40960     30.5/100    1/10     Healthy    team/p/main",
        "n1      1       n1-1          0/40960        0/100       0/10     Unhealthy  <none>",
    ]


def test_wide_table_has_whole_uuids_and_models() -> None:
    """`-o wide` leaves nothing out."""
    wide = top.table(_fleet(), wide=True)
    assert wide.headers[2:4] == ["UUID", "MODEL"]
    assert [row[2:4] for row in wide.rows] == [[UUID, "NVIDIA A100"], ["n1-1", "<none>"]]


def test_json_and_yaml_say_the_same() -> None:
    """The structured forms are one structure, in the units of the API: MiB and millicards."""
    data = json.loads(render(_fleet(), top.table(_fleet()), output="json"))
    assert data == yaml.safe_load(render(_fleet(), top.table(_fleet()), output="yaml"))
    assert data["problems"] == []
    assert data["nodes"][0]["cards"][0] == {
        "index": 0,
        "uuid": UUID,
        "model": "NVIDIA A100",
        "healthy": True,
        "memoryMiB": {"used": 3000, "total": 40960},
        "cores": {"used": 305, "total": 1000},
        "slots": {"used": 1, "total": 10},
        "shares": [{"namespace": "team", "pod": "p", "container": "main", "memoryMiB": 3000, "cores": 305}],
    }
