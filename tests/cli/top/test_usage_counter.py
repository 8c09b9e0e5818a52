import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from agent.publishing import publisher
from allocation import names
from allocation.allocation import Allocation, CardShare, ClaimMark, Exclusivity
from allocation.delivery import NodeDelivery, Toolkit
from allocation.inventory import Card, NodeInventory
from allocation.mig import MODE, MigInstance
from allocation.settings import AllocationSettings, ResourceNames
from allocation.wire import hami, record
from cli.kube.objects import NodeMetadata, Pod
from cli.tables import render
from cli.top import top, usage_counter
from cli.top.usage import Amount, FleetUsage
from cli.top.usage_counter import FleetObjects
from cluster.dra import ResourceClaim, ResourceSlice
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.lease import Lease, LeaseLabels
from cluster.metadata import ObjectMeta
from tests.scheduler.support import dra

UUID = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


NOW = datetime(2026, 1, 1, 0, 1, 1, tzinfo=UTC).timestamp()


def _count(
    statuses: list[GpuNodeStatus],
    pods: list[Pod],
    *,
    nodes: Sequence[NodeMetadata] = (),
    leases: Sequence[Lease] | None = (),
    settings: AllocationSettings | None = None,
    slices: Sequence[dra.Object] = (),
    claims: Sequence[dra.Object] = (),
) -> FleetUsage:
    alive = [_heartbeat("n1", age=0)] if leases == () else leases
    objects = FleetObjects(
        statuses,
        pods,
        nodes,
        alive,
        NOW,
        slices=msgspec.convert(slices, list[ResourceSlice]),
        claims=msgspec.convert(claims, list[ResourceClaim]),
    )
    return usage_counter.count(objects, settings or AllocationSettings())


def _status(node: str = "n1", *cards: Card) -> GpuNodeStatus:
    default = (
        Card(uuid=UUID, index=0, memory_mib=40960, model="NVIDIA A100"),
        Card(uuid=f"{node}-1", index=1, memory_mib=40960, healthy=False),
    )
    return GpuNodeStatus(ObjectMeta(name=node), status_of(NodeInventory(node, cards or default)))


def _pod(name: str = "p", *, node: str = "n1", phase: str = "Running", **containers: tuple[CardShare, ...]) -> Pod:
    """Return a pod that asks for a GPU in `main`, `init` before it, and was given `containers`."""
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
    """Memory, cores and slots are sums over the pods with shares, and each share is listed."""
    pods = [_pod(name, main=(CardShare(UUID, 0, 3000, 305),)) for name in ("a", "b")]
    fleet = _count([_status()], pods)
    card, idle = fleet.nodes[0].cards
    assert (card.memory_mib, card.cores, card.slots) == (Amount(6000, 40960), Amount(610, 1000), Amount(2, 10))
    assert [str(share) for share in card.shares] == ["team/a/main", "team/b/main"]
    assert (idle.memory_mib.used, idle.healthy, idle.shares) == (0, False, ())
    assert not [each for each in fleet.nodes[0].conditions if each.type == "UncountedPod"]


def test_a_pod_is_charged_the_maximum_of_init_and_regular_containers() -> None:
    """They do not run at the same time, so the card is charged the larger amount, as in the scheduler."""
    pod = _pod(init=(CardShare(UUID, 0, 5000, 100),), main=(CardShare(UUID, 0, 3000, 300),))
    card = _count([_status()], [pod]).nodes[0].cards[0]
    assert (card.memory_mib.used, card.cores.used, card.slots.used) == (5000, 300, 1)
    assert len(card.shares) == 2


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n1", "Succeeded"), ("n1", "Failed")])
def test_only_running_pods_count(node: str, phase: str) -> None:
    """A pending pod holds nothing yet, and a finished pod holds nothing any more."""
    pod = _pod(node=node, phase=phase, main=(CardShare(UUID, 0, 3000, 300),))
    assert _count([_status()], [pod]).nodes[0].cards[0].slots.used == 0


def test_an_uncounted_pod_closes_its_node() -> None:
    """A running pod that requests a GPU and has no allocation is shown as the reason why its node takes no pods."""
    fleet = _count([_status()], [_pod()])
    (condition,) = (each for each in fleet.nodes[0].conditions if each.type == "UncountedPod")
    assert condition.message == (
        "node n1 takes no GPU pods: pod team/p runs here uncounted: it requests a GPU and has no allocation"
    )


def test_an_allocation_for_another_node_closes_the_node() -> None:
    """An allocation counts only on the node that it names."""
    pod = _pod(node="n2", main=(CardShare(UUID, 0, 3000, 300),))
    pod.spec.node_name = "n1"
    fleet = _count([_status()], [pod])
    assert fleet.nodes[0].conditions[0].message.endswith("its allocation is for node n2")
    assert fleet.nodes[0].cards[0].slots.used == 0


def test_a_card_that_two_nodes_report_counts_once() -> None:
    """The second report is refused, as in the scheduler, and shown as a condition of its node."""
    fleet = _count([_status("n1"), _status("n2")], [])
    assert [(node.name, len(node.cards)) for node in fleet.nodes] == [("n1", 2), ("n2", 0)]
    assert fleet.nodes[1].conditions[0].type == "InventoryRefused"
    assert fleet.nodes[1].conditions[0].message == (f"node n2 reports card {UUID}, which node n1 has already reported")


def _heartbeat(node: str, *, age: float) -> Lease:
    return msgspec.convert(publisher.heartbeat(node, identity="agent", seconds=60, unix=NOW - age), Lease)


def test_a_silent_agent_is_shown_with_the_time_of_its_last_heartbeat() -> None:
    """An agent is silent if its Lease has expired or does not exist."""
    statuses = [_status(name) for name in ("n1", "n2", "n3")]
    for status in statuses[1:]:
        assert status.status is not None
        status.status.devices.clear()
    fleet = _count(statuses, [], leases=[_heartbeat("n1", age=59), _heartbeat("n2", age=61)])
    assert [node.agent for node in fleet.nodes] == ["Alive", "Silent", "Silent"]
    assert [node.silent_since for node in fleet.nodes] == ["", "2026-01-01T00:00:00.000000Z", ""]
    assert "Lease tranche-system/agent-n2 was last renewed at 2026-01-01" in fleet.nodes[1].conditions[0].message
    assert "Lease tranche-system/agent-n3 does not exist" in fleet.nodes[2].conditions[0].message


def test_an_agent_of_an_early_version_is_alive_by_its_own_lease() -> None:
    """During an upgrade its Lease has another name, which may also be that of the Lease of a card."""
    legacy, of_a_card = _heartbeat("n1", age=59), _heartbeat("n2", age=59)
    legacy.metadata.name, of_a_card.metadata.name = "gpu-n1", "gpu-n2"
    of_a_card.metadata.labels = LeaseLabels("true")
    fleet = _count([_status("n1"), _status("n2")], [], leases=[legacy, of_a_card])
    assert [node.agent for node in fleet.nodes] == ["Alive", "Silent"]


def test_without_the_right_to_read_leases_no_agent_is_silent() -> None:
    """The state of an agent is Unknown to users who cannot read its heartbeat."""
    fleet = _count([_status()], [], leases=None)
    assert (fleet.nodes[0].agent, fleet.nodes[0].silent_since) == ("Unknown", "")
    assert "AgentSilent" not in [each.type for each in fleet.nodes[0].conditions]


def _node(name: str, **annotations: str) -> NodeMetadata:
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, NodeMetadata)


def test_a_node_that_cannot_deliver_is_shown_with_the_reason() -> None:
    """Its cards count, but the scheduler places no pod there."""
    status = _status()
    assert status.status is not None
    status.status.delivery = NodeDelivery("cdi", Toolkit("legacy", "1.17.8"))
    (node,) = _count([status], []).nodes
    assert node.conditions[0].type == "DeliveryUnavailable"
    assert "mode legacy" in node.conditions[0].message
    assert len(node.cards) == 2


def test_a_node_without_a_driver_is_shown_with_its_pods() -> None:
    """Pods count whether their cards are still reported or not; the state of the node says why it takes no other."""
    held = _pod(main=(CardShare(UUID, 0, 3000, 300),))
    kept, lost = _status(), GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", ())))
    assert kept.status is not None
    kept.status.state, kept.status.message = "DriverMissing", "nvmlInit: Driver Not Loaded"
    for status, state, cards in ((kept, "DriverMissing", 2), (lost, "NoCards", 0)):
        fleet = _count([status], [held])
        (node,) = fleet.nodes
        assert (node.conditions[0].type, len(node.cards), node.pods) == (state, cards, 1)
        assert [each.pods for each in fleet.of_namespace("team").nodes] == [1]
    assert _count([kept], []).nodes[0].conditions[0].message.endswith("nvmlInit: Driver Not Loaded")


def test_a_node_of_dra_is_shown_with_its_pods() -> None:
    """Those of the ledger that are left, and why it takes no other."""
    status = _status()
    assert status.status is not None
    status.status.allocator = "draining"
    (node,) = _count([status], [_pod(main=(CardShare(UUID, 0, 3000, 300),))]).nodes
    assert (node.conditions[0].type, node.pods) == ("NodeDraining", 1)
    status.status.allocator = "dra"
    assert _count([status], []).nodes[0].conditions[0].type == "AllocatedByDra"
    status.status.allocator = "ledger"
    (node,) = _count([status], []).nodes
    assert [each.type for each in node.conditions] == ["Unhealthy"]


def test_nodes_with_only_a_register_annotation_are_shown() -> None:
    """A node that HAMi's plugin registered has cards and no agent; an unreadable annotation is a condition."""
    inventory = NodeInventory("n5", (Card(uuid="GPU-n5-0", index=0, memory_mib=8192),))
    nodes = [
        _node("n5", **{names.HAMI_REGISTER: hami.encode_register(inventory)}),
        _node("n6", **{names.HAMI_REGISTER: "x"}),
    ]
    fleet = _count([], [], nodes=nodes)
    assert [(node.name, node.agent, len(node.cards)) for node in fleet.nodes] == [("n5", "None", 1), ("n6", "None", 0)]
    assert [each.type for each in fleet.nodes[1].conditions] == ["InventoryRefused"]


def test_cards_that_pods_and_claims_have_are_double_booked() -> None:
    """Neither a card that only a claim has, nor one by an older generation of the pool, nor by `adminAccess`."""
    claimed = [dra.slice_of("n1", UUID, "n1-1"), dra.slice_of("n1", "n1-1", UUID, generation=0, name="old")]
    pods = [_pod(main=(CardShare(UUID, 0, 3000, 300),))]
    for device, admin, states in (
        ("gpu-0", False, ["Healthy,DoubleBooked", "Unhealthy"]),
        ("gpu-1", False, ["Healthy", "Unhealthy"]),
        ("gpu-0", True, ["Healthy", "Unhealthy"]),
    ):
        fleet = _count([_status()], pods, slices=claimed, claims=[dra.claim("c", "n1", device, admin=admin)])
        assert [card.state for card in fleet.nodes[0].cards] == states
        assert ("DoubleBooked" in {each.type for each in fleet.nodes[0].conditions}) is ("DoubleBooked" in states[0])


def test_a_card_is_double_booked_by_a_pod_with_an_instance_of_it() -> None:
    """The claim has the card, and the pod a part of it."""
    parent, instance = Card(uuid=UUID, index=0, memory_mib=40960, mode=MODE), "MIG-n1-0"
    part = Card(uuid=instance, index=0, memory_mib=10240, instance=MigInstance(UUID, "1g.10gb"))
    pod = _pod(main=(CardShare(instance, 0, 10240, 1000, parent=UUID),))
    fleet = _count(
        [_status("n1", parent, part)], [pod], slices=[dra.slice_of("n1", UUID)], claims=[dra.claim("c", "n1", "gpu-0")]
    )
    assert [card.double_booked_by for card in fleet.nodes[0].cards] == [("default/c",), ()]


def test_cordoned_and_unhealthy_cards_are_marked() -> None:
    """Both appear in the row of the card and, summed, in the row of the node, with the agent's message."""
    status = _status()
    assert status.status is not None
    status.status.devices[1].message = "XID 79"
    fleet = _count(
        [status], [], nodes=[_node("n1", **{names.CORDON: f" other ,, {UUID}"})], leases=[_heartbeat("n1", age=0)]
    )
    assert [card.state for card in fleet.nodes[0].cards] == ["Healthy,Cordoned", "Unhealthy"]
    assert top.node_table(fleet).rows[0][1] == "Unhealthy(1),Cordoned(1)"
    assert fleet.nodes[0].conditions[0].message == "card n1-1 (XID 79)"


def test_the_node_table_sums_the_cards_of_a_node() -> None:
    """Each row has the reserved amounts of all cards of a node and the number of pods with shares."""
    assert list(top.node_table(_fleet()).rows[0]) == [
        "n1",
        "Unhealthy(1)",
        "2",
        "3000/81920",
        "30.5/200",
        "1/20",
        "1",
    ]
    assert top.node_table(_fleet(), wide=True).rows[0][-2:] == ["Alive", "NVIDIA A100"]


def test_configured_resource_names_are_read() -> None:
    """Whether a pod requests a GPU depends on the configured resource names."""
    settings = AllocationSettings(resources=ResourceNames(count="example.com/gpu"))
    assert "UncountedPod" in [each.type for each in _count([_status()], [_pod()]).nodes[0].conditions]
    fleet = _count([_status()], [_pod()], settings=settings)
    assert "UncountedPod" not in [each.type for each in fleet.nodes[0].conditions]


def test_the_namespace_flag_selects_shares_and_keeps_amounts() -> None:
    """`-n` omits cards without shares of the namespace, and the names of other namespaces' pods."""
    theirs = _pod("b", main=(CardShare(UUID, 0, 1000, 100),))
    theirs.metadata.namespace = "other"
    fleet = _count([_status()], [_pod("a", main=(CardShare(UUID, 0, 3000, 300),)), theirs]).of_namespace("team")
    (card,) = fleet.nodes[0].cards
    assert (card.memory_mib.used, [str(share) for share in card.shares]) == (4000, ["team/a/main"])
    assert fleet.of_namespace("third").nodes == ()


def test_the_card_table_lists_two_pods_and_counts_the_rest() -> None:
    """Only the wide table lists all pods of a card."""
    fleet = _count([_status()], [_pod(name, main=(CardShare(UUID, 0, 1, 1),)) for name in "abc"])
    assert top.card_table(fleet).rows[0][-1] == "team/a/main,team/b/main,+1 more"
    assert top.card_table(fleet, wide=True).rows[0][-1] == "team/a/main,team/b/main,team/c/main"


def _fleet() -> FleetUsage:
    return _count([_status()], [_pod(main=(CardShare(UUID, 0, 3000, 305),))])


def test_the_card_table_has_one_row_per_card() -> None:
    """UUIDs are shortened so that the table fits a terminal, and empty cells show `<none>`."""
    assert render(_fleet(), top.card_table(_fleet()), output="table").splitlines() == [
        "NODE    CARD    UUID          MEMORY(MiB)    CORES(%)    SLOTS    HEALTH     PODS",
        "n1      0       GPU-8dcd427f  3000/40960     30.5/100    1/10     Healthy    team/p/main",
        "n1      1       n1-1          0/40960        0/100       0/10     Unhealthy  <none>",
    ]


def test_the_wide_table_has_full_uuids_and_models() -> None:
    """`-o wide` shows the full UUID, the model and the mode."""
    wide = top.card_table(_fleet(), wide=True)
    assert wide.headers[2:5] == ["UUID", "MODEL", "MODE"]
    assert [row[2:4] for row in wide.rows] == [[UUID, "NVIDIA A100"], ["n1-1", "<none>"]]


def test_limits_are_shown_as_overcommitted() -> None:
    """The amounts stay within the card; the wide table adds up what the containers may use, which may be more."""
    share = CardShare(UUID, 0, 3000, 500, memory_limit_mib=30000, cores_limit=900)
    fleet = _count([_status()], [_pod(name, main=(share,)) for name in ("a", "b")])
    row = dict(zip((table := top.card_table(fleet, wide=True)).headers, table.rows[0], strict=True))
    assert (row["CORES(%)"], row["LIMITS(%)"]) == ("100/100", "180")
    assert (row["MEMORY(MiB)"], row["LIMITS(MiB)"]) == ("6000/40960", "60000")


def test_json_and_yaml_have_the_same_structure() -> None:
    """Both formats use the units of the API: MiB and millicards."""
    data = json.loads(render(_fleet(), top.card_table(_fleet()), output="json"))
    assert data == yaml.safe_load(render(_fleet(), top.card_table(_fleet()), output="yaml"))
    assert data["nodes"][0]["cards"][0] == {
        "index": 0,
        "uuid": UUID,
        "model": "NVIDIA A100",
        "mode": "hami-core",
        "healthy": True,
        "message": "",
        "cordoned": False,
        "memoryMiB": {"used": 3000, "total": 40960},
        "cores": {"used": 305, "total": 1000},
        "slots": {"used": 1, "total": 10},
        "shares": [
            {
                "namespace": "team",
                "pod": "p",
                "container": "main",
                "memoryMiB": 3000,
                "cores": 305,
                "claim": "",
                "whole": False,
                "memoryLimitMiB": 0,
                "coresLimit": 0,
            }
        ],
        "doubleBookedBy": [],
        "burstMemoryMiB": 0,
        "burstCores": 0,
    }


def _claiming(exclusivity: Exclusivity, share: CardShare) -> Pod:
    """Return a pod with a claim, whose two containers have the same card."""
    pod = _pod(init=(share,), main=(share,))
    allocation = Allocation("n1", {"init": (share,), "main": (share,)}, ClaimMark("single", exclusivity))
    pod.metadata.annotations = {names.CLAIM: "single", names.ALLOCATION: record.encode(allocation)}
    return pod


def test_a_card_that_a_pod_has_alone_is_shown_as_whole() -> None:
    """It is in full use, whatever the share says, and names the claim with each container."""
    pod = _claiming("Exclusive", CardShare(UUID, 0, 40000, 900))
    fleet = _count([_status()], [pod])
    card = fleet.nodes[0].cards[0]
    assert card.is_whole
    assert (card.memory_mib, card.cores, card.slots) == (Amount(40960, 40960), Amount(1000, 1000), Amount(10, 10))
    row = top.card_table(fleet).rows[0]
    assert (row[5], row[-1]) == ("whole", "team/p/init(single),team/p/main(single)")
    assert top.node_table(fleet).rows[0][5] == "10/20"


def test_the_containers_of_a_claim_count_once() -> None:
    """They share the card; other pods may use it as well."""
    pod = _claiming("Shared", CardShare(UUID, 0, 3000, 300))
    fleet = _count([_status()], [pod, _pod("other", main=(CardShare(UUID, 0, 1000, 100),))])
    card = fleet.nodes[0].cards[0]
    assert (card.memory_mib.used, card.cores.used, card.slots.used) == (4000, 400, 2)
    assert not card.is_whole
    row = top.card_table(fleet, wide=True).rows[0]
    assert (row[9], row[-1]) == ("2/10", "team/other/main,team/p/init(single),team/p/main(single)")
