"""`kubectl gpu capacity`: what it counts here or has the scheduler count, nodes that could be added, and its text."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from allocation.inventory import NodeInventory
from cli.capacity import capacity, local_capacity, tables
from cli.capacity.answer import Capacity
from cli.errors import CommandError
from cli.explain import added_nodes, addition
from cli.explain.addition import Addition
from cli.installation.rules import Rules
from cli.kube.session import Session
from cli.workloads import expand
from cli.workloads.files import SourcedWorkload
from cluster.gpu_node_status import GpuNodeStatus, NodeProblem, status_of
from cluster.metadata import ObjectMeta
from cluster.resource import GPU_NODE_STATUSES
from scheduler.api.capacity_types import (
    Blame,
    CapacityView,
    LargestSlice,
    PlaceCount,
    ShapeCapacity,
    Stranded,
)
from scheduler.api.request_body import Manifests
from scheduler.expander_settings import TemplateSettings, TemplateTaint
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.cli.support.sessions import session_on
from tests.scheduler.support.builders import allocated, namespace, node, state, status

TEAM = "default"


def manifest(name: str, memory: int, **spec: Any) -> dict[str, Any]:
    """Return a pod as a user writes it."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def site() -> ClusterState:
    """Return a node with two cards of 1000 MiB, of which one is half full."""
    made = state("n1")
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    made.set_pod(allocated("a", node="n1", memory=500))
    return made


@pytest.fixture
def reported() -> Iterator[Session]:
    """A session with an API server that has the report of node n1."""
    with session_on({GPU_NODE_STATUSES.path(): msgspec.to_builtins(status("n1"))}) as (session, _):
        yield session


def count(session: Session, made: ClusterState, *pods: dict[str, Any], add: Addition | None = None) -> Capacity:
    """Return the counts of these pods."""
    named = [(pod["metadata"]["name"], Manifests(pod)) for pod in pods]
    return local_capacity.count(session, made, Rules(), named, add)


def test_added_nodes_count_as_empty(reported: Session) -> None:
    """They are like the template, without its pods; what fits now is counted before."""
    found = count(reported, site(), manifest("p", 500), add=Addition("n1", 2))
    assert [(each.name, each.count) for each in found.now.shapes] == [("p", 3)]
    assert found.with_nodes is not None
    (shape,) = found.with_nodes.shapes
    assert {each.name: each.count for each in shape.nodes} == {"n1": 3, "n1-copy-1": 4, "n1-copy-2": 4}


def test_an_added_node_is_not_cordoned_and_keeps_labels_and_taints(reported: Session) -> None:
    """But for its host name; annotations, which may cordon cards, are those of the template alone."""
    made = state()
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "NoExecute"},
    ]
    labels = {"kubernetes.io/hostname": "n1", "zone": "a"}
    metadata = {"name": "n1", "labels": labels, "annotations": {"gpu.scheduling/cordon": "GPU-n1-0"}}
    made.set_node(node("n1", metadata=metadata, spec={"unschedulable": True, "taints": taints}))
    made.agent_reports.set(status("n1"))
    added_nodes.add(reported, made, Addition("n1", 1))
    added = made.node_cache.nodes["n1-copy-1"]
    assert added.metadata.labels == {"kubernetes.io/hostname": "n1-copy-1", "zone": "a"}
    assert (added.spec.unschedulable, [each.key for each in added.spec.taints]) == (False, ["gpu"])
    assert (made.ledger.cordon("n1-copy-1"), made.closed_nodes.now()) == (frozenset(), {})
    inventory = made.ledger.inventory("n1-copy-1")
    assert inventory is not None
    assert [card.uuid for card in inventory.cards] == ["GPU-n1-0-n1-copy-1", "GPU-n1-1-n1-copy-1"]


def test_the_cards_of_added_nodes_are_healthy_and_instances_belong_to_them() -> None:
    """A new node has no broken cards; a MIG instance names its card by the UUID of the copy."""
    made = state("n1")
    cards = (mig_card(0, node="n1"), instance(0, "1g.5gb", 0, node="n1"))
    broken = msgspec.structs.replace(status("n2").inventory().cards[0], index=1, healthy=False)
    report = GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", (*cards, broken))))
    with session_on({GPU_NODE_STATUSES.path(): msgspec.to_builtins(report)}) as (session, _):
        added_nodes.add(session, made, Addition("n1", 1))
    inventory = made.ledger.inventory("n1-copy-1")
    assert inventory is not None
    card, part, mended = inventory.cards
    assert (part.parent, mended.healthy) == (card.uuid, True)


def test_nodes_of_a_configured_group_are_added_that_never_existed(reported: Session) -> None:
    """By the name of the group, with its labels, taints, resources and cards."""
    made = state()
    group = TemplateSettings(
        "gpus", {"pool": "gpus"}, cards=2, memory_mib=1000, taints=(TemplateTaint("gpu", "NoSchedule"),)
    )
    added_nodes.add(reported, made, Addition("gpus", 1), groups=(group,))
    node_ = made.node_cache.nodes["gpus-copy-1"]
    assert (node_.metadata.labels["pool"], [each.key for each in node_.spec.taints]) == ("gpus", ["gpu"])
    inventory = made.ledger.inventory("gpus-copy-1")
    assert inventory is not None
    assert [card.memory_mib for card in inventory.cards] == [1000, 1000]
    assert made.closed_nodes.now() == {}


def test_a_node_that_cannot_be_copied_is_named(reported: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not exist, or no agent reports it; one that takes no pods has copies that take none, with a note."""
    with pytest.raises(CommandError, match="node n9 does not exist"):
        added_nodes.add(reported, state("n1"), Addition("n9", 1))
    with pytest.raises(CommandError, match="no agent reports the cards of node n2"):
        added_nodes.add(reported, state("n1", "n2"), Addition("n2", 1))
    report = status("n1")
    assert report.status is not None
    report.status.state, report.status.message = "DriverMissing", "no driver"
    assert isinstance(report.problem, NodeProblem)
    with session_on({GPU_NODE_STATUSES.path(): msgspec.to_builtins(report)}) as (session, _):
        added_nodes.add(session, state("n1"), Addition("n1", 1))
    assert "the added nodes take no GPU pods, as node n1" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["=4", "n1=", "n1=0", "n1=1001", "n1=x", "n1=99999999999999999999"])
def test_a_wrong_number_of_nodes_is_refused(text: str) -> None:
    """The message has the value and an example."""
    with pytest.raises(CommandError, match="NODE=COUNT"):
        addition.read(text)


def test_without_a_number_one_node_is_added() -> None:
    """As with a number."""
    assert addition.read("n1") == Addition("n1", 1)
    assert addition.read("n1=4") == Addition("n1", 4)


def test_standard_shapes_are_counted_without_a_pod(reported: Session) -> None:
    """A whole card, and the sizes that pods have."""
    assert [(each.name, each.count) for each in count(reported, site()).now.shapes] == [
        ("whole card", 1),
        ("500 MiB", 3),
    ]


def test_a_pod_of_another_scheduler_is_refused_with_the_remedy(reported: Session) -> None:
    """Its namespace is not opted in."""
    plain = state("n1")
    plain.limits.set_namespace(namespace(TEAM))
    with pytest.raises(CommandError, match="gpu.scheduling/injection=enabled"):
        count(reported, plain, manifest("p", 500))
    with pytest.raises(CommandError, match="metadata"):
        count(reported, site(), {**manifest("p", 500), "metadata": {"name": "p", "namespace": 5}})


class Api:
    """A scheduler that counts one more for each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Manifests | None]] = []

    def capacity(self, namespace: str, manifests: Manifests | None) -> CapacityView:
        """Return a count."""
        self.asked.append((namespace, manifests))
        number = len(self.asked)
        return CapacityView((ShapeCapacity("pod", number),), LargestSlice(100 * number, 10, "T4"))


def test_the_scheduler_counts_for_users_of_one_namespace(reported: Session) -> None:
    """One request per workload, in the namespace of its pods; the largest slice is that of the first."""
    api: Any = Api()
    pods = [(SourcedWorkload("f", each), each.make(0)) for each in expand.of(manifest("a", 5))]
    pods += [(SourcedWorkload("f", each), each.make(0)) for each in expand.of(manifest("b", 5))]
    named = [(source, Manifests(made)) for source, made in pods]
    named[1][1].pod["metadata"]["namespace"] = "team"
    found = capacity._of_scheduler(api, reported, named, None)
    assert [(shape.name, shape.count) for shape in found.now.shapes] == [("Pod a", 1), ("Pod b", 2)]
    assert (found.now.largest, [each for each, _ in api.asked]) == (LargestSlice(100, 10, "T4"), ["default", "team"])
    assert capacity._of_scheduler(api, reported, [], None).now.shapes[0].count == 3
    with pytest.raises(CommandError, match="tranche-viewer"):
        capacity._of_scheduler(api, reported, [], Addition("n1", 1))


def test_the_text_has_counts_reasons_the_largest_slice_and_what_is_stranded() -> None:
    """A count that was ended says so; a reason is shown if a quota ends the count, nothing fits, or a pod was named."""
    nodes = tuple(PlaceCount(f"n{number}", 9 - number) for number in range(5))
    now = CapacityView(
        (
            ShapeCapacity("whole card", 35, models=(PlaceCount("", 35),), nodes=nodes, why="no available node"),
            ShapeCapacity("500 MiB", 1000, is_exact=False),
            ShapeCapacity("small", 3, why="GpuQuota q", is_limited_by_quota=True),
            ShapeCapacity("large", 0, why="too large"),
        ),
        LargestSlice(900, 70, "T4", "n1"),
        (Stranded("compute", 2, 900, 0, (Blame("team", 2, 900, 0),)), Stranded("node", 0.5, 0, 0)),
    )
    printed = tables.text(Capacity(now), wide=False, headers=True, explains=False)
    assert [re.sub("  +", "  ", line) for line in printed.splitlines()] == [
        "SHAPE  FITS  MODELS  NODES",
        "whole card  35  unknown=35  n0=9,n1=8,n2=7,+2 more",
        "500 MiB  at least 1000  <none>  <none>",
        "small  3  <none>  <none>",
        "large  0  <none>  <none>",
        "",
        "small: a quota ends the count, the cards would take more: GpuQuota q",
        "large: none fits: too large",
        "largest slice: 900 MiB and 70 % of the compute of T4 on node n1",
        "",
        "STRANDED  CARDS  FREE MEMORY  FREE COMPUTE  BY",
        "no compute left on the card  2  900 MiB  <none>  team=2",
        "too little CPU or memory on the node  0.5  <none>  <none>  <none>",
    ]
    explained = tables.text(Capacity(now), wide=True, headers=False, explains=True)
    assert "whole card: no more fit: no available node" in explained
    assert "n0=9,n1=8,n2=7,n3=6,n4=5" in explained
    more = CapacityView((ShapeCapacity("whole card", 99), *now.shapes[1:]))
    first = tables.text(Capacity(now, Addition("n1", 2), more), wide=False, headers=True, explains=False).splitlines()
    assert (first[0].split()[:4], first[1].split()[:4]) == (
        ["SHAPE", "FITS", "WITH", "NODES"],
        ["whole", "card", "35", "99"],
    )
