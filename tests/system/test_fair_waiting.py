"""Fairness of the queue: the first pod in order gets a freed card, and one tenant cannot delay the others."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from allocation import limits
from lab import kubectl
from lab.client import client
from lab.fleet import CARD_MEMORY_MIB, SIMULATED_NODES
from lab.processes import Daemon
from tests.support.depth import repetitions
from tests.system.conftest import Namespace, pod
from tests.system.support import scheduler_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = SIMULATED_NODES[0]
CARDS = 8
TURNS = repetitions(10, 30)
HOSTILE = 60
DIFFERENT = repetitions(100, 700)
BARE_NODES = 100
PROMISED_S = 2.0
"""So much longer than on a quiet cluster one tenant's pods wait at most because of another's."""


@pytest.fixture
def important(tranche: Layout) -> Iterator[str]:
    """A PriorityClass of pods that wait until cards become free."""
    name = "test-important"
    fields = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    client(tranche).apply({**fields, "value": 1_000_000, "preemptionPolicy": "Never"})
    yield name
    client(tranche).delete("priorityclass", name)


def whole(name: str, **fields: Any) -> dict[str, Any]:
    """Return the manifest of a pod that takes a whole card of one node."""
    made = pod(name, node=NODE, gpu=1, gpumem=CARD_MEMORY_MIB)
    made["spec"].update(fields)
    return made


def test_freed_card_goes_to_the_pod_with_priority_not_to_the_replacement(namespace: Namespace, important: str) -> None:
    """With all cards allocated, a pod is deleted and replaced at once, often; the waiting pod gets its card."""
    namespace.create(*(whole(f"old-{index}") for index in range(CARDS)))
    namespace.placed(CARDS)
    for turn in range(TURNS):
        name, leaving = f"important-{turn}", f"old-{turn}"
        namespace.create(whole(name, priorityClassName=important))
        namespace.unplaced(name)
        namespace.delete("pods", leaving, wait=False)
        namespace.create(whole(f"old-{turn + CARDS}"))
        node = namespace.until(
            lambda pods, name=name: pods[name]["spec"].get("nodeName"),  # type: ignore[misc]
            what=f"{name} on the freed card",
        )
        assert node == NODE
        assert "nodeName" not in namespace.pod(f"old-{turn + CARDS}")["spec"], (
            f"the replacement overtook in turn {turn}"
        )
        namespace.delete("pods", name)
        namespace.placed(CARDS)


@pytest.fixture
def bare_nodes(tranche: Layout) -> Iterator[None]:
    """Nodes without cards and without kubelets."""
    names = [f"bare-{index}" for index in range(BARE_NODES)]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    kubectl.run(tranche, "create", "-f", "-", stdin=listed)
    yield
    kubectl.run(tranche, "delete", "node", "--wait=false", *names)


def hostile(index: int) -> dict[str, Any]:
    """Return the manifest of an unschedulable pod with selectors and lists of the maximum size."""
    made = pod(f"hostile-{index}", gpu=1, gpumem=1)
    per_term = limits.NODE_EXPRESSIONS // limits.NODE_SELECTOR_TERMS
    passing = [{"key": f"not-there-{each}", "operator": "DoesNotExist"} for each in range(per_term - 1)]
    failing = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"nowhere-{index}"]}
    terms = [{"matchExpressions": [*passing, failing]}] * limits.NODE_SELECTOR_TERMS
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made["spec"]["affinity"] = {"nodeAffinity": required}
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    listed = ",".join(f"GPU-{index:06}-{each:025}" for each in range(limits.LIST_CHARACTERS // 37))
    made["metadata"]["annotations"] = {"nvidia.com/nouse-gpuuuid": listed}
    return made


def metric(layout: Layout, name: str) -> float:
    """Return the value of a metric of the scheduler."""
    (sample,) = scheduler_api.metrics(scheduler_api.url(layout))[name]
    return sample.value


def different(index: int) -> dict[str, Any]:
    """Return the manifest of a pod that fits no card, and that equals no other one."""
    return pod(f"different-{index}", gpu=1, gpumem=CARD_MEMORY_MIB + 1 + index)


def placement_seconds(namespace: Namespace) -> float:
    """Return the longest time from the creation of a pod until it has a node, of pods that are created one by one."""
    taken = []
    for turn in range(5):
        namespace.create(pod(f"modest-{turn}", gpu=1, gpumem=100))
        begin = time.monotonic()
        namespace.placed(turn + 1)
        taken.append(time.monotonic() - begin)
    namespace.empty()
    return max(taken)


@pytest.fixture
def stranger(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of another tenant."""
    made = make_namespace()
    yield made
    made.empty()


def test_expensive_pods_of_one_tenant_do_not_delay_others(
    tranche: Layout, bare_nodes: None, namespace: Namespace, stranger: Namespace
) -> None:
    """Behind 60 pods at the limits another tenant's wait at most 2 s; no term is lost, and memory is bounded."""
    quiet = placement_seconds(stranger)
    scheduler, terms = Daemon(tranche, "scheduler"), metric(tranche, "tranche_scheduler_terms_total")
    before, pid = metric(tranche, "process_resident_memory_bytes"), scheduler.pid
    for begin in range(0, HOSTILE, 20):
        namespace.create(*(hostile(index) for index in range(begin, begin + 20)))
    namespace.unplaced(f"hostile-{HOSTILE - 1}")
    assert placement_seconds(stranger) < quiet + PROMISED_S
    assert scheduler.pid == pid
    assert metric(tranche, "tranche_scheduler_terms_total") == terms
    assert metric(tranche, "process_resident_memory_bytes") - before < HOSTILE * 1024 * 1024
    assert metric(tranche, "tranche_event_loop_longest_pause_seconds") < 2.0


def test_many_different_pods_of_one_tenant_do_not_delay_others(namespace: Namespace, stranger: Namespace) -> None:
    """Hundreds that no node takes are created at once; another tenant's, created then, wait at most 2 s."""
    quiet = placement_seconds(stranger)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda index: namespace.create(different(index)), range(DIFFERENT)))
    assert placement_seconds(stranger) < quiet + PROMISED_S
