"""A pod goes only where kube-scheduler would let it go."""

from typing import Any

import pytest

from allocation.settings import ResourceNames
from allocation.steps import finish
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.node_filter import NodeFilter
from tests.scheduler.support.builders import node, pod
from tests.scheduler.support.rejections import texts

GPU_NAMES = ResourceNames().managed()


def refusal(pod_spec: dict[str, Any], **node_fields: Any) -> str:
    """Return the text of node n1's rejection of a pod, or an empty string."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1", **node_fields))
    return texts(finish(NodeFilter(node_cache).filter(pod("p", memory=1, **pod_spec))).rejections).get("n1", "")


def affinity(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    """Return a required node affinity of one expression."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


METADATA = {"name": "n1", "labels": {"zone": "a", "rank": "5", "odd": "5_0"}}
TAINTED = {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("pod_spec", "node_fields", "expected"),
    [
        ({}, {}, ""),
        ({}, {"spec": {"unschedulable": True}}, "node was unschedulable"),
        (
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            {"spec": {"unschedulable": True}},
            "",
        ),
        ({}, TAINTED, "node had untolerated taint {k: v}"),
        ({}, {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}, ""),
        ({"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, TAINTED, ""),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, TAINTED, ""),
        ({"tolerations": [{"operator": "Exists"}]}, TAINTED, ""),
        ({"tolerations": [{"key": "k", "value": "w"}]}, TAINTED, "node had untolerated taint {k: v}"),
        (
            {"tolerations": [{"key": "k", "operator": "Lt", "value": "v"}]},
            TAINTED,
            "node had untolerated taint {k: v}",
        ),
        ({"nodeSelector": {"zone": "a"}}, {"metadata": METADATA}, ""),
        ({"nodeSelector": {"zone": "b"}}, {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
        (affinity("In", "a", "b"), {"metadata": METADATA}, ""),
        (affinity("NotIn", "a"), {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
        (affinity("NotIn", "a", key="none"), {"metadata": METADATA}, ""),
        (affinity("Exists", key="none"), {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
        (affinity("DoesNotExist", key="none"), {"metadata": METADATA}, ""),
        (affinity("Gt", "4", key="rank"), {"metadata": METADATA}, ""),
        (affinity("Lt", "5", key="rank"), {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
        (affinity("Gt", "x", key="rank"), {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
        (affinity("Gt", "-1", key="odd"), {"metadata": METADATA}, "node didn't match Pod's node affinity/selector"),
    ],
)
def test_filters_have_kube_schedulers_results(
    pod_spec: dict[str, Any], node_fields: dict[str, Any], expected: str
) -> None:
    """Selectors, affinity, taints and unschedulable nodes, with kube-scheduler's messages."""
    assert refusal(pod_spec, **node_fields) == expected


def test_gpu_resources_are_not_filtered() -> None:
    """Nodes with an agent advertise none; the ledger counts them."""
    assert refusal({}) == ""


def containers(**requests: str) -> dict[str, Any]:
    """Return a spec of one container with these requests."""
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (containers(cpu="1500m"), "Insufficient cpu"),
        (containers(memory="2Gi"), "Insufficient memory"),
        ({**containers(cpu="500m"), "overhead": {"cpu": "600m"}}, "Insufficient cpu"),
        ({**containers(cpu="1"), "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}, ""),
        (
            {
                **containers(cpu="600m"),
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
                ],
            },
            "Insufficient cpu",
        ),
        (containers(**{"example.com/thing": "1"}), "Insufficient example.com/thing"),
        ({**containers(cpu="2"), "resources": {"requests": {"cpu": "500m"}}}, ""),
        ({**containers(cpu="500m"), "resources": {"requests": {"cpu": "2"}}}, "Insufficient cpu"),
    ],
)
def test_node_resources(spec: dict[str, Any], expected: str) -> None:
    """CPU, memory and other extended resources count as in kube-scheduler, with sidecars and overhead."""
    small = {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
    assert refusal(spec, **small) == expected


def test_an_overcommitted_node_takes_a_pod_that_requests_nothing() -> None:
    """A request of 0 fits everywhere: kube-scheduler does not compare it with what is free."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "2"}}))
    node_cache.add_pod(pod("large", **containers(cpu="2")), "n1")
    assert finish(NodeFilter(node_cache).filter(pod("idle", **containers(cpu="0")))).fitting == ["n1"]


def test_used_resources_are_not_available() -> None:
    """Pods on the node use resources, even when only assumed; a pod that is removed frees them."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "2"}}))
    half = pod("half", **containers(cpu="600m"))
    other = pod("other", **containers(cpu="600m"))
    for is_assumed in (True, False):
        node_cache.add_pod(half, "n1", assumed=is_assumed)
        assert node_cache.is_assumed(half.uid) is is_assumed
        assert texts(finish(NodeFilter(node_cache).filter(other)).rejections) == {"n1": "Insufficient cpu"}
        node_cache.remove_pod(half.uid)
        assert finish(NodeFilter(node_cache).filter(other)).fitting == ["n1"]
    node_cache.remove_pod(half.uid)
    assert finish(NodeFilter(node_cache).filter(other)).fitting == ["n1"]


def test_the_number_of_pods_is_limited() -> None:
    """It is a resource like any other."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "1"}}))
    node_cache.add_pod(pod("a"), "n1")
    assert texts(finish(NodeFilter(node_cache).filter(pod("b"))).rejections) == {"n1": "Too many pods"}


def test_host_ports_do_not_collide() -> None:
    """The same port of the same address and protocol collides, and the wildcard address with every address."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1"))

    def with_port(name: str, **port: Any) -> Any:
        return pod(name, containers=[{"name": "main", "ports": [{"hostPort": 80, **port}]}])

    node_cache.add_pod(with_port("a", hostIP="10.0.0.1"), "n1")
    assert finish(NodeFilter(node_cache).filter(with_port("b"))).rejections
    assert finish(NodeFilter(node_cache).filter(with_port("c", hostIP="10.0.0.2"))).fitting == ["n1"]
    assert finish(NodeFilter(node_cache).filter(with_port("d", hostIP="10.0.0.1", protocol="UDP"))).fitting == ["n1"]


@pytest.mark.parametrize(("policy", "is_free"), [("Always", False), (None, True)])
def test_a_port_is_held_by_who_lives_as_long_as_the_pod(policy: str | None, is_free: bool) -> None:  # noqa: FBT001
    """A sidecar, but not an init container, which is gone when others start."""
    node_cache = NodeCache(ours=GPU_NAMES)
    node_cache.set_node(node("n1"))
    ports = {"ports": [{"hostPort": 80}]}
    node_cache.add_pod(pod("a", initContainers=[{"name": "i", "restartPolicy": policy, **ports}]), "n1")
    assert (
        finish(NodeFilter(node_cache).filter(pod("b", containers=[{"name": "main", **ports}]))).fitting == ["n1"]
    ) == is_free
