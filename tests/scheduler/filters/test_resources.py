"""What pods request of CPU, memory and other resources of their node, as kube-scheduler counts it."""

from typing import Any

import pytest

from allocation.settings import ResourceNames
from scheduler.filters import resources
from tests.scheduler.support.builders import pod

GPU_NAMES = ResourceNames().managed()


def containers(**requests: str) -> dict[str, Any]:
    """Return a spec of one container with these requests."""
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def container_status(name: str, cpu: str) -> dict[str, Any]:
    """Return the status of a container with these allocated resources."""
    return {"name": name, "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}


@pytest.mark.parametrize(
    ("spec", "status", "taken"),
    [
        (containers(cpu="3"), {}, 3000),
        (containers(cpu="3"), {"containerStatuses": [container_status("main", "5")]}, 5000),
        (containers(cpu="3"), {"containerStatuses": [container_status("main", "1")]}, 3000),
        (containers(cpu="3"), {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "4"}}]}, 4000),
        (
            {
                **containers(cpu="3"),
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                ],
            },
            {"initContainerStatuses": [container_status("s", "2")]},
            5000,
        ),
        (
            {**containers(cpu="3"), "overhead": {"cpu": "1"}},
            {"containerStatuses": [container_status("main", "5")]},
            6000,
        ),
        (
            {**containers(), "resources": {"requests": {"cpu": "3"}}},
            {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "2"}}},
            4000,
        ),
    ],
)
def test_a_resized_pod_uses_the_larger_of_request_and_allocation(
    spec: dict[str, Any], status: dict[str, Any], taken: int
) -> None:
    """A shrinking pod uses the old size until its node has resized it; a growing one may use the new size soon."""
    one = pod("p", node="n1", phase="Running", status=status, **spec)
    assert resources.requests(one, ours=GPU_NAMES)["cpu"] == taken
