"""The cache counts what the pods of each node use, with and without some of them."""

from typing import Any

from allocation.settings import ResourceNames
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.resources import CPU, MEMORY, PODS
from tests.scheduler.support.builders import node, pod

GPU_NAMES = ResourceNames().managed()


def sized(name: str, cpu: str, port: int = 0) -> Any:
    """Return a pod that requests CPU, and takes a port unless it is 0."""
    ports = {"ports": [{"hostPort": port}]} if port else {}
    return pod(name, containers=[{"name": "main", "resources": {"requests": {"cpu": cpu}}, **ports}])


def amounts(cache: NodeCache, *without: str) -> dict[str, int]:
    """Return what the pods of node n1 use, without pods of some UIDs, and without what is 0."""
    return {name: amount for name, amount in cache.used_on("n1", without=without).items() if amount}


def test_used_amounts_follow_the_pods() -> None:
    """A pod counts once, as it was last and where it was last, and a removed pod no more."""
    cache = NodeCache(ours=GPU_NAMES)
    cache.add_pod(sized("a", "1"), "n1", assumed=True)
    cache.add_pod(sized("a", "2"), "n1")
    cache.add_pod(sized("b", "500m"), "n1")
    assert amounts(cache) == cache.used["n1"] == {CPU: 2500, PODS: 2}
    assert cache.cpu_and_memory("uid-b") == (500, 0)
    cache.add_pod(sized("b", "500m"), "n2")
    assert amounts(cache) == {CPU: 2000, PODS: 1}
    assert (cache.pods_of("n1"), cache.pods_of("n2")) == (("uid-a",), ("uid-b",))
    for _ in range(2):
        cache.remove_pod("uid-a")
        assert amounts(cache) == {}


def test_a_hypothesis_changes_nothing() -> None:
    """What a node would have without some pods is a copy; pods elsewhere and unknown ones make no difference."""
    cache = NodeCache(ours=GPU_NAMES)
    cache.add_pod(sized("a", "1", port=80), "n1")
    cache.add_pod(sized("b", "2", port=81), "n1")
    cache.add_pod(sized("c", "4"), "n2")
    gone = cache.by_node(("uid-a", "uid-c", "uid-unknown"))
    assert gone == {"n1": {"uid-a"}, "n2": {"uid-c"}}
    for _ in range(2):
        assert amounts(cache, "uid-a", "uid-c") == {CPU: 2000, PODS: 1}
        assert {port for *_, port in cache.ports_on("n1", without=gone["n1"])} == {81}
        assert cache.pods_on("n1", without=gone["n1"]) == 1
    assert amounts(cache) == {CPU: 3000, PODS: 2}
    assert {port for *_, port in cache.ports_on("n1")} == {80, 81}


def test_pods_of_a_node_are_counted_before_and_after_it_exists() -> None:
    """Pods and nodes become known in any order; a node that is deleted offers nothing, and its pods stay counted."""
    cache = NodeCache(ours=GPU_NAMES)
    cache.add_pod(sized("a", "1"), "n1")
    assert "n1" not in cache
    cache.set_node(node("n1", status={"allocatable": {"cpu": "4", "memory": "1Ki", "pods": "2"}}))
    assert cache.allocatable["n1"] == {CPU: 4000, MEMORY: 1024, PODS: 2}
    cache.drop_node("n1")
    assert "n1" not in cache.allocatable
    assert amounts(cache) == {CPU: 1000, PODS: 1}


def test_nodes_that_advertise_the_counted_resource_are_known() -> None:
    """They have a device plugin; others leave the resource to the ledger."""
    cache = NodeCache(ours=(), counted="nvidia.com/gpu")
    cache.set_node(node("n1", status={"allocatable": {"nvidia.com/gpu": "8"}}))
    cache.set_node(node("n2", status={"allocatable": {}}))
    assert cache.advertising == {"n1"}
    cache.set_node(node("n1", status={"allocatable": {}}))
    assert not cache.advertising
    cache.set_node(node("n2", status={"allocatable": {"nvidia.com/gpu": "8"}}))
    cache.drop_node("n2")
    assert not cache.advertising


def test_changes_are_reported_by_node() -> None:
    """Only a pod that comes takes without giving; rankings need no look at other changes then."""
    changes: list[tuple[str, bool]] = []
    cache = NodeCache(ours=GPU_NAMES, on_change=lambda name, taken: changes.append((name, taken)))
    cache.set_node(node("n1"))
    cache.add_pod(sized("a", "1"), "n1")
    cache.add_pod(sized("a", "1"), "n2")
    cache.remove_pod("uid-a")
    cache.remove_pod("uid-a")
    cache.drop_node("n1")
    assert changes == [("n1", False), ("n1", True), ("n1", False), ("n2", True), ("n2", False), ("n1", False)]
