"""A pod goes only where kube-scheduler would let it go."""

from typing import Any

import pytest

from allocation.settings import ResourceNames
from scheduler.fleet import Fleet
from tests.scheduler.builders import node, pod

GPU_NAMES = ResourceNames().all()


def refusal(pod_spec: dict[str, Any], **node_fields: Any) -> str:
    """Answer why node n1 refuses a pod, empty where it does not."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1", **node_fields))
    return fleet.sort(pod("p", memory=1, **pod_spec).spec).refusals.get("n1", "")


def affinity(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    """Answer a required node affinity of one expression."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


METADATA = {"name": "n1", "labels": {"zone": "a", "rank": "5"}}
TAINTED = {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("pod_spec", "node_fields", "expected"),
    [
        ({}, {}, ""),
        ({}, {"spec": {"unschedulable": True}}, "node was unschedulable"),
        ({}, TAINTED, "node had untolerated taint {k: v}"),
        ({}, {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}, ""),
        ({"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, TAINTED, ""),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, TAINTED, ""),
        ({"tolerations": [{"operator": "Exists"}]}, TAINTED, ""),
        ({"tolerations": [{"key": "k", "value": "w"}]}, TAINTED, "node had untolerated taint {k: v}"),
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
    ],
)
def test_predicates(pod_spec: dict[str, Any], node_fields: dict[str, Any], expected: str) -> None:
    """Selectors, affinity, taints and cordons decide as kube-scheduler's do, in its words."""
    assert refusal(pod_spec, **node_fields) == expected


def test_gpu_resources_are_not_asked_of_the_node() -> None:
    """Our nodes advertise none; the ledger counts them."""
    assert refusal({}) == ""


def containers(**requests: str) -> dict[str, Any]:
    """Answer a spec of one container with these requests."""
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
    ],
)
def test_node_resources(spec: dict[str, Any], expected: str) -> None:
    """CPU, memory and foreign extended resources count as kube-scheduler counts them, sidecars and overhead too."""
    small = {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
    assert refusal(spec, **small) == expected


def test_what_is_taken_is_not_given_again() -> None:
    """Pods on the node, assumed ones included, take their part; one that leaves or is forgotten gives it back."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "2"}}))
    half = pod("half", **containers(cpu="600m"))
    other = pod("other", **containers(cpu="600m"))
    fleet.settle(half, "n1", assumed=True)
    assert fleet.sort(other.spec).refusals == {"n1": "Insufficient cpu"}
    fleet.forget(half.uid)
    assert fleet.sort(other.spec).fitting == ["n1"]
    fleet.settle(half, "n1")
    fleet.forget(half.uid)
    assert fleet.sort(other.spec).refusals == {"n1": "Insufficient cpu"}, "a pod that runs cannot be forgotten"
    fleet.leave(half.uid)
    assert fleet.sort(other.spec).fitting == ["n1"]


def test_a_node_takes_so_many_pods() -> None:
    """The number of pods is a resource like any other."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "1"}}))
    fleet.settle(pod("a"), "n1")
    assert fleet.sort(pod("b").spec).refusals == {"n1": "Too many pods"}


def test_a_host_port_is_given_once() -> None:
    """The same port of the same address and protocol; every address collides with each."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1"))

    def with_port(name: str, **port: Any) -> Any:
        return pod(name, containers=[{"name": "main", "ports": [{"hostPort": 80, **port}]}])

    fleet.settle(with_port("a", hostIP="10.0.0.1"), "n1")
    assert fleet.sort(with_port("b").spec).refusals
    assert fleet.sort(with_port("c", hostIP="10.0.0.2").spec).fitting == ["n1"]
    assert fleet.sort(with_port("d", hostIP="10.0.0.1", protocol="UDP").spec).fitting == ["n1"]
