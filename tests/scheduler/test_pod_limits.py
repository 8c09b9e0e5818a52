"""A pod beyond a limit is held with a message, and costs neither time nor memory."""

from typing import Any

import msgspec
import pytest

from allocation import limits
from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.extender import wire
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.extending import Bindings, bound, cache, extending
from tests.scheduler.support.scheduling import schedule


def terms(count: int, *, expressions: int = 1, values: int = 1) -> dict[str, Any]:
    """Return the spec of a pod with required node affinity."""
    one = {"key": "k", "operator": "NotIn", "values": [f"v{index}" for index in range(values)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [one] * expressions}] * count}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def apart(count: int) -> dict[str, Any]:
    """Return the spec of a pod with required anti-affinity."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * count}}}


def preferring(count: int, *, expressions: int = 1) -> dict[str, Any]:
    """Return the spec of a pod with preferred node affinity."""
    one = {"key": "k", "operator": "NotIn", "values": ["v"]}
    term = {"weight": 1, "preference": {"matchExpressions": [one] * expressions}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term] * count}}}


def preferring_pods(count: int) -> dict[str, Any]:
    """Return the spec of a pod with preferred affinity and anti-affinity."""
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"podAffinity": {key: [term]}, "podAntiAffinity": {key: [term] * (count - 1)}}}


def containers(count: int, **fields: Any) -> dict[str, Any]:
    """Return the spec of a pod with many containers, one of which asks for a card."""
    gpu = {"name": "gpu", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10"}}}
    return {"containers": [gpu, *({"name": f"c{index}", **fields} for index in range(count - 1))]}


def gpu_containers(count: int) -> dict[str, Any]:
    """Return the spec of a pod with many containers that ask for a card."""
    amounts = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}}
    return {"containers": [{"name": f"c{index}", "resources": amounts} for index in range(count)]}


def resources(count: int) -> dict[str, Any]:
    """Return the spec of a pod whose containers name many resources."""
    return containers(2, resources={"limits": {f"example.com/r{index}": "0" for index in range(count - 2)}})


CASES: dict[str, tuple[Any, int]] = {
    "containers": (containers, limits.CONTAINERS),
    "GPU containers": (gpu_containers, limits.GPU_CONTAINERS),
    "resources": (resources, limits.RESOURCES),
    "host ports": (lambda count: containers(2, ports=[{"hostPort": 1 + n} for n in range(count)]), limits.HOST_PORTS),
    "volumes": (lambda count: {"volumes": [{"name": "v", "emptyDir": {}}] * count}, limits.VOLUMES),
    "nodeSelector": (lambda count: {"nodeSelector": {f"k{n}": "" for n in range(count)}}, limits.NODE_SELECTOR_LABELS),
    "tolerations": (lambda count: {"tolerations": [{"operator": "Exists"}] * count}, limits.TOLERATIONS),
    "spread": (
        lambda count: {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 5}] * count},
        limits.SPREAD_CONSTRAINTS,
    ),
    "terms": (terms, limits.NODE_SELECTOR_TERMS),
    "expressions": (lambda count: terms(1, expressions=count), limits.NODE_EXPRESSIONS),
    "values": (lambda count: terms(1, values=count - 1), limits.SELECTOR_VALUES),
    "pod terms": (apart, limits.POD_AFFINITY_TERMS),
    "preferred terms": (preferring, limits.PREFERRED_NODE_TERMS),
    "preferred expressions": (lambda count: preferring(1, expressions=count), limits.NODE_EXPRESSIONS),
    "preferred pod terms": (preferring_pods, limits.PREFERRED_POD_TERMS),
    "labels": (lambda count: {"labels": {f"k{n}": "" for n in range(count)}}, limits.POD_LABELS),
    "list": (lambda count: {"annotations": {"nvidia.com/nouse-gpuuuid": "x" * count}}, limits.LIST_CHARACTERS),
}


@pytest.mark.parametrize("case", CASES)
def test_only_a_pod_beyond_a_limit_is_held(case: str) -> None:
    """The message names the part of the pod, its size and the limit."""
    make, most = CASES[case]
    made = state("n1")
    decision = finish(schedule(made, pod("at", **{"memory": 10, **make(most)})))
    assert isinstance(decision, Scheduled) or not decision.note.startswith("PodHeld")
    decision = finish(schedule(made, pod("beyond", **{"memory": 10, **make(most + 1)})))
    assert isinstance(decision, Unschedulable)
    assert decision.is_held
    assert decision.note.startswith("PodHeld: ")
    assert f"{most + 1} " in decision.note
    assert f", {most} is the limit for a pod that Tranche schedules" in decision.note


async def test_a_pod_beyond_a_limit_is_rejected_in_extender_mode() -> None:
    """No node is offered for it and it is not bound, because its dropped containers may have requested cards."""
    made, pending, api = state("n1", has_queue=False), pod("a", memory=10, **terms(20_000)), Bindings()
    api.pods["a"] = pending
    verbs = extending(made, api)
    cache(verbs, pending)
    args = wire.decode_args(msgspec.json.encode({"Pod": pod("a", memory=10), "NodeNames": ["n1"]}))
    response = await verbs.filter(args)
    assert response.failed_and_unresolvable_nodes["n1"].startswith("PodHeld: spec.affinity.nodeAffinity has 20000 ")
    assert "20000 required terms" in await bound(verbs, pending, "n1")
    assert not api.written


def test_selectors_have_a_limit_of_characters() -> None:
    """A few long values count as much as many short ones."""
    made = state("n1")
    long = "x" * (limits.SELECTOR_CHARACTERS // 4)
    selector = {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": [long] * 4}]}}
    decision = finish(schedule(made, pod("a", memory=10, topologySpreadConstraints=[{"topologyKey": "z", **selector}])))
    assert isinstance(decision, Unschedulable)
    assert f"characters in all keys and values, {limits.SELECTOR_CHARACTERS} is the limit" in decision.note


def size(value: object) -> int:
    """Return the size of a pod in bytes of JSON."""
    return len(msgspec.json.encode(value))


def test_oversized_parts_of_a_pod_are_not_kept() -> None:
    """Neither the parts beyond a limit nor annotations that are never read."""
    large = {"nvidia.com/use-gpuuuid": "GPU-x," * 50_000, "example.com/notes": "x" * 200_000}
    for kept in (
        pod("a", memory=10, **terms(20_000)),
        pod("b", memory=10, annotations=large),
        pod("c", memory=10, labels={f"k{index}": "v" * 60 for index in range(5_000)}),
    ):
        assert size(kept) < 5_000
        assert kept.excess


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "c" * 300_000}},
        {"rbd": {"monitors": ["monitor"] * 50_000, "image": "i"}},
        {"awsElasticBlockStore": {"volumeID": "v" * 300_000}},
    ],
    ids=str,
)
def test_sources_of_volumes_are_not_kept_beyond_a_limit(source: dict[str, Any], node: str) -> None:
    """The API server checks few of their fields; the volumes of a running pod beyond the limit count for no pod."""
    kept = pod("a", memory=10, node=node, volumes=[{"name": "v", **source}])
    assert size(kept) < 5_000
    assert kept.excess.startswith("spec.volumes has ")
    assert "characters in all sources, 16384 is the limit" in kept.excess


def test_of_annotations_only_those_of_pods_are_kept() -> None:
    """Those of nodes have no bound of their own; a name, a policy or a duration is short."""
    large = {
        "hami.io/node-nvidia-register": "x" * 200_000,
        "gpu.scheduling/claim": "c" * 200_000,
        "gpu.scheduling/preemption-protection": "1" * 200_000 + "h",
    }
    kept = pod("a", memory=10, annotations=large).metadata.annotations
    assert {key: len(value) for key, value in kept.items()} == {
        "gpu.scheduling/claim": 254,
        "gpu.scheduling/preemption-protection": 254,
    }


def test_few_gates_and_claims_of_devices_are_kept() -> None:
    """Of claims only whether there is one matters; messages name eight gates."""
    many = {"schedulingGates": [{"name": f"g{n}"} for n in range(5_000)], "resourceClaims": [{"name": "c"}] * 5_000}
    kept = pod("a", memory=10, **many)
    assert kept.spec.gates == "g0, g1, g2, g3, g4, g5, g6, g7, …"
    assert len(kept.spec.resource_claims) == 1


def test_a_pod_that_has_a_node_counts_with_all_its_containers() -> None:
    """Its requests and ports count, whatever its size."""
    made = state("n1")
    many = {"containers": [{"name": f"c{n}", "resources": {"requests": {"cpu": "100m"}}} for n in range(600)]}
    made.set_pod(pod("large", node="n1", phase="Running", **many))
    decision = finish(schedule(made, pod("small", memory=10, **containers(2, resources={"requests": {"cpu": "5"}}))))
    assert isinstance(decision, Unschedulable)
    assert "Insufficient cpu" in decision.note


def test_a_manifest_cannot_set_excess() -> None:
    """The field is overwritten when the pod is read."""
    text = b'{"metadata":{"name":"a","excess":"x"},"spec":{"excess":"y"}}'
    assert msgspec.json.decode(text, type=Pod).excess == ""
