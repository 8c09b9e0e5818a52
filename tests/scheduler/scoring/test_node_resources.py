"""Vectors from kube-scheduler's NodeResourcesFit: percentages of CPU and memory, rounded down, and their mean."""

from typing import Any

import pytest

from scheduler.objects import Node
from scheduler.scoring import node_resources
from scheduler.scoring.node_resources import Strategy
from tests.scheduler.support.builders import node, pod
from tests.scheduler.support.preferring import cluster, everywhere, listed

MIB = 1024 * 1024


def sized(name: str, cpu: str, memory: str) -> Node:
    """Return a node of this size."""
    return node(name, status={"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}})


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    """Return a container with these requests."""
    return {"name": name, "resources": {"requests": requests}}


def on(name: str, *containers: dict[str, Any], **more: Any) -> Any:
    """Return a running pod."""
    return pod(f"on-{name}-{len(containers)}", node=name, phase="Running", containers=[*containers], **more)


def scores(*nodes: Node, running: tuple[Any, ...] = (), strategy: Strategy, **spec: Any) -> list[int]:
    """Return the scores of nodes for a pod."""
    made = cluster(*nodes, running=running, scores_resources=True)
    return listed(node_resources.scores(pod("p", **spec), everywhere(made), made, strategy=strategy))


NODES = (sized("n1", "4", "10000Mi"), sized("n2", "6", "10000Mi"))


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", [37, 55]), ("MostAllocated", [62, 45])])
def test_free_or_used_percentages_are_averaged(strategy: Strategy, expected: list[int]) -> None:
    """Of 4000 millicores 3000, of 10000 MiB 5000: 25 and 50 free, 75 and 50 used. n2: 60 and 50, 40 and 50."""
    spec = {"containers": [container(cpu="1", memory="2000Mi")]}
    both = (on("n1", container(cpu="2", memory="3000Mi")), on("n2", container(cpu="1400m", memory="3000Mi")))
    assert scores(*NODES, running=both, strategy=strategy, **spec) == expected


def test_a_container_without_requests_counts_with_a_default() -> None:
    """100 millicores and 200 MiB each: of 1 core 300 are used with the running pod, of 1000 MiB 600."""
    silent = on("n1", container("a"), container("b"))
    found = scores(sized("n1", "1", "1000Mi"), running=(silent,), strategy="MostAllocated", containers=[container()])
    assert found == [(30 + 60) // 2]


def test_use_beyond_the_capacity_counts_as_all() -> None:
    """The defaults of many small pods may exceed a node."""
    silent = on("n1", *(container(f"c{number}") for number in range(8)))
    small = sized("n1", "500m", "1000Mi")
    assert scores(small, running=(silent,), strategy="MostAllocated", containers=[container()]) == [100]
    assert scores(small, running=(silent,), strategy="LeastAllocated", containers=[container()]) == [0]


def test_a_resource_that_a_node_does_not_have_is_left_out() -> None:
    """The mean is over the others."""
    only_cpu = node("n1", status={"allocatable": {"cpu": "1"}})
    assert scores(only_cpu, strategy="MostAllocated", containers=[container(cpu="500m")]) == [50]
    assert scores(node("n1", status={"allocatable": {}}), strategy="LeastAllocated") == [0]


def test_requests_of_a_running_pod_as_a_whole_replace_defaults() -> None:
    """Its containers then count nothing for what the pod requests; for the other resource the default counts."""
    whole = on("n1", container(), resources={"requests": {"cpu": "500m"}})
    found = scores(sized("n1", "1", "1000Mi"), running=(whole,), strategy="MostAllocated", containers=[container()])
    assert found == [(60 + 40) // 2]


def test_pods_that_end_count_no_more() -> None:
    """The sums go back to nothing."""
    running = on("n1", container(cpu="2", memory="3000Mi"))
    made = cluster(*NODES, running=(running,), scores_resources=True)
    made.add_pod(running, "n2")
    assert made.scored_requests is not None
    assert made.scored_requests.on("n1") == (0, 0)
    assert made.scored_requests.on("n2") == (2000, 3000 * MIB)
    made.remove_pod(running.uid)
    assert made.scored_requests.on("n2") == (0, 0)
