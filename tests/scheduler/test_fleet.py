"""A pod goes only where kube-scheduler would let it go."""

from typing import Any

import pytest

from allocation.settings import ResourceNames
from scheduler import resources
from scheduler.fleet import Fleet
from tests.scheduler.builders import node, pod

GPU_NAMES = ResourceNames().managed()


def refusal(pod_spec: dict[str, Any], **node_fields: Any) -> str:
    """Answer why node n1 refuses a pod, empty where it does not."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1", **node_fields))
    return fleet.sort(pod("p", memory=1, **pod_spec)).refusals.get("n1", "")


def affinity(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    """Answer a required node affinity of one expression."""
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
        ({**containers(cpu="2"), "resources": {"requests": {"cpu": "500m"}}}, ""),
        ({**containers(cpu="500m"), "resources": {"requests": {"cpu": "2"}}}, "Insufficient cpu"),
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
    assert fleet.sort(other).refusals == {"n1": "Insufficient cpu"}
    fleet.forget(half.uid)
    assert fleet.sort(other).fitting == ["n1"]
    fleet.settle(half, "n1")
    fleet.forget(half.uid)
    assert fleet.sort(other).refusals == {"n1": "Insufficient cpu"}, "a pod that runs cannot be forgotten"
    fleet.leave(half.uid)
    assert fleet.sort(other).fitting == ["n1"]


def granted(name: str, cpu: str) -> dict[str, Any]:
    """Answer the status of a container to which its node has granted so much."""
    return {"name": name, "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}


@pytest.mark.parametrize(
    ("spec", "status", "taken"),
    [
        (containers(cpu="3"), {}, 3000),
        (containers(cpu="3"), {"containerStatuses": [granted("main", "5")]}, 5000),
        (containers(cpu="3"), {"containerStatuses": [granted("main", "1")]}, 3000),
        (containers(cpu="3"), {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "4"}}]}, 4000),
        (
            {
                **containers(cpu="3"),
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                ],
            },
            {"initContainerStatuses": [granted("s", "2")]},
            5000,
        ),
        ({**containers(cpu="3"), "overhead": {"cpu": "1"}}, {"containerStatuses": [granted("main", "5")]}, 6000),
        (
            {**containers(), "resources": {"requests": {"cpu": "3"}}},
            {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "2"}}},
            4000,
        ),
    ],
)
def test_a_resized_pod_takes_the_larger_of_wish_and_grant(
    spec: dict[str, Any], status: dict[str, Any], taken: int
) -> None:
    """Shrinking, it uses the old size until its node has granted the new one; growing, it may use the new one soon."""
    one = pod("p", node="n1", phase="Running", status=status, **spec)
    assert resources.requests(one, ours=GPU_NAMES)["cpu"] == taken


def test_a_node_takes_so_many_pods() -> None:
    """The number of pods is a resource like any other."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1", status={"allocatable": {"cpu": "1", "pods": "1"}}))
    fleet.settle(pod("a"), "n1")
    assert fleet.sort(pod("b")).refusals == {"n1": "Too many pods"}


def test_a_host_port_is_given_once() -> None:
    """The same port of the same address and protocol; every address collides with each."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1"))

    def with_port(name: str, **port: Any) -> Any:
        return pod(name, containers=[{"name": "main", "ports": [{"hostPort": 80, **port}]}])

    fleet.settle(with_port("a", hostIP="10.0.0.1"), "n1")
    assert fleet.sort(with_port("b")).refusals
    assert fleet.sort(with_port("c", hostIP="10.0.0.2")).fitting == ["n1"]
    assert fleet.sort(with_port("d", hostIP="10.0.0.1", protocol="UDP")).fitting == ["n1"]


@pytest.mark.parametrize(("policy", "is_free"), [("Always", False), (None, True)])
def test_a_port_is_held_by_who_lives_as_long_as_the_pod(policy: str | None, is_free: bool) -> None:  # noqa: FBT001
    """A sidecar, but not an init container, which is gone when others start."""
    fleet = Fleet(ours=GPU_NAMES)
    fleet.set_node(node("n1"))
    ports = {"ports": [{"hostPort": 80}]}
    fleet.settle(pod("a", initContainers=[{"name": "i", "restartPolicy": policy, **ports}]), "n1")
    assert (fleet.sort(pod("b", containers=[{"name": "main", **ports}])).fitting == ["n1"]) == is_free
