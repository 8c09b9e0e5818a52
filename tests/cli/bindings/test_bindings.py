"""The rows of `kubectl gpu bindings`."""

from typing import Any

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.bindings.binding import Binding
from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION, APP_NAME, APP_OWNER
from allocation.settings import AllocationSettings, BindingSettings
from allocation.wire import record
from cli.bindings import bindings
from cli.bindings.bindings import of_objects
from cli.bindings.report import BindingsReport
from cli.kube.objects import NodeMetadata, Pod
from cli.top.usage_counter import FleetObjects
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from tests.cli.bindings.test_problems import binding

NOW = 1_767_232_800.0
"""Two hours after the bindings were created."""


def pod(
    name: str, card: str, *, app: str = "chat", owner: str = "alice", namespace: str = "ns-a", parent: str = ""
) -> Pod:
    """Return a running pod of an application with a card; of none if `app` is empty."""
    allocation = Allocation("n1", {"main": (CardShare(card, 0, 1000, 0, parent=parent),)})
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "labels": {APP_NAME: app, APP_OWNER: owner} if app else {},
        "annotations": {ALLOCATION: record.encode(allocation)},
    }
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}}, Pod)


def report(*bindings: Binding, pods: tuple[Pod, ...] = (), readable: bool = True) -> BindingsReport:
    """Return the report for a node n1 with the cards GPU-1, which is divided by memory, and GPU-2."""
    cards = tuple(Card(uuid=f"GPU-{number}", index=number, memory_mib=40960) for number in (1, 2))
    status = GpuNodeStatus(ObjectMeta("n1"), status_of(NodeInventory("n1", cards)))
    metadata: dict[str, Any] = {"name": "n1", "annotations": {"sharemode.gpu.bytetrade.io/GPU-1": "1"}}
    nodes = [msgspec.convert({"metadata": metadata}, NodeMetadata)] if readable else None
    settings = AllocationSettings(bindings=BindingSettings(mode="required"))
    return of_objects(bindings, FleetObjects([status], pods, nodes, None, NOW), settings)


def test_a_row_has_the_card_its_node_and_what_the_binding_gives() -> None:
    """Memory is in MiB, however it is written; the wide table adds the name and the age."""
    made = report(binding("b", memory="24k"))
    table = bindings.table(made, wide=True, now=NOW)
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert row == {
        "CARD": "GPU-1",
        "NODE": "n1",
        "APP": "chat",
        "OWNER": "alice",
        "NAMESPACE": "ns-a",
        "MEMORY": "24000 MiB",
        "MODE": "memory-slicing",
        "PODS": "<none>",
        "BINDING": "b",
        "AGE": "2h",
    }
    assert list(bindings.table(made, wide=False, now=NOW).headers) == list(row)[:8]


def test_what_is_not_known_is_not_guessed() -> None:
    """A card without a node has no share mode, and neither has one whose node may not be read."""
    made = report(binding("a", card="GPU-9", memory="abc"), binding("b", card="GPU-2", owner="", namespace=""))
    rows = [list(row) for row in bindings.table(made, wide=False, now=NOW).rows]
    assert rows == [
        ["GPU-2", "n1", "chat", "<none>", "<none>", "<none>", "time-slicing", "<none>"],
        ["GPU-9", "<none>", "chat", "alice", "ns-a", "invalid", "-", "<none>"],
    ]
    assert report(binding("a"), readable=False).bindings[0].share_mode is None


def test_pods_of_the_application_that_have_the_card_are_listed() -> None:
    """Pods of another user, in another namespace, or with another card are not; an instance counts as its card."""
    pods = (
        pod("web", "GPU-1"),
        pod("mig", "MIG-1", parent="GPU-1"),
        pod("spare", "GPU-2"),
        pod("bobs", "GPU-1", owner="bob"),
        pod("elsewhere", "GPU-1", namespace="ns-b"),
        pod("other", "GPU-1", app="draw"),
        pod("plain", "GPU-1", app=""),
    )
    assert report(binding("b"), pods=pods).bindings[0].pods == ("ns-a/mig", "ns-a/web")
    legacy = report(binding("b", owner="", namespace=""), pods=pods).bindings[0]
    assert legacy.pods == ("ns-a/bobs", "ns-a/mig", "ns-a/web", "ns-b/elsewhere")


def test_the_table_shows_two_pods_and_the_wide_one_all() -> None:
    """A row stays a line."""
    made = report(binding("b"), pods=tuple(pod(f"p{n}", "GPU-1") for n in range(3)))
    assert bindings.table(made, wide=False, now=NOW).rows[0][7] == "ns-a/p0,ns-a/p1,+1 more"
    assert bindings.table(made, wide=True, now=NOW).rows[0][7] == "ns-a/p0,ns-a/p1,ns-a/p2"


def test_an_application_sees_every_binding_that_counts_for_it() -> None:
    """Those without owner or namespace count for all users, and conflicts with hidden bindings are shown."""
    made = report(
        binding("alices", memory="24k"),
        binding("bobs", owner="bob", namespace="ns-b", memory="24k"),
        binding("legacy", owner="", namespace="", card="GPU-2"),
        binding("draw", app="draw", card="GPU-2", namespace=""),
    )
    own = made.concerning(app="chat", owner="bob", namespace="ns-b")
    assert [each.name for each in own.bindings] == ["legacy", "bobs"]
    assert [(each.type, each.bindings) for each in own.problems] == [
        ("MemoryExceeded", ("alices", "bobs")),
        ("NoNamespace", ("draw", "legacy")),
    ]
    others = made.concerning(app="draw", owner="", namespace="")
    assert [each.name for each in others.bindings] == ["draw"]
    assert [each.type for each in others.problems] == ["NoNamespace"]
    assert made.concerning(app="", owner="", namespace="") == made


def test_notes_end_after_ten_problems() -> None:
    """The rest is counted; without bindings a note says so instead of an empty table alone."""
    shown = list(bindings.notes(report(*(binding(f"b{n}", card=f"GPU-gone-{n:02}", namespace="") for n in range(11)))))
    assert len(shown) == 11
    assert shown[0].startswith("GPUBinding b0: no node reports card GPU-gone-00")
    assert shown[10] == "and 2 more; -o json has all of them"
    assert list(bindings.notes(report())) == ["no GPUBindings found"]


def test_structured_output_has_everything() -> None:
    """Field names are those of the API, and the setting that decides is there."""
    content = msgspec.to_builtins(report(binding("b", memory="24k")))
    assert content["mode"] == "required"
    assert content["bindings"][0] == {
        "name": "b",
        "created": "2026-01-01T00:00:00Z",
        "card": "GPU-1",
        "node": "n1",
        "appName": "chat",
        "owner": "alice",
        "namespace": "ns-a",
        "memory": "24k",
        "memoryMiB": 24000,
        "shareMode": "memory-slicing",
        "pods": (),
    }
