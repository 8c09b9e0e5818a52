"""A slice that fits nowhere brings a node: by a request in tranche-system that an autoscaler answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.client import client
from tests.system.conftest import Namespace, pod
from tests.system.support import expanding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.system.support.expanding import Autoscaler

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def autoscaler(tranche: Layout) -> Iterator[Autoscaler]:
    """A group with one node of two cards, and who brings more of them."""
    with expanding.expanding(tranche, "expanded") as played:
        yield played


def asking(autoscaler: Autoscaler, name: str, **limits: int) -> dict[str, Any]:
    """Return a pod that only nodes of the group may run."""
    made = pod(name, **limits)
    made["spec"]["nodeSelector"] = autoscaler.labels
    return made


def test_pods_that_fit_nowhere_bring_one_node_and_run_there(autoscaler: Autoscaler, namespace: Namespace) -> None:
    """Two slices share the node that is asked for; when its agent has reported, the request is gone and both run."""
    namespace.create(*(asking(autoscaler, f"full-{number}", gpu=1) for number in range(2)))
    namespace.placed(2)
    assert autoscaler.requests() == []
    namespace.create(*(asking(autoscaler, f"slice-{number}", gpu=1, gpumem=4000) for number in range(2)))
    request = autoscaler.until_requested()
    assert request["spec"]["nodeSelector"] == autoscaler.labels
    assert request["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    autoscaler.bring("expanded-1")
    nodes = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in namespace.placed(4)}
    assert {nodes["slice-0"], nodes["slice-1"]} == {"expanded-1"}
    autoscaler.until_none()
    events = client(namespace.layout).list("events", namespace=namespace.name, fields="reason=PreScheduled")
    assert {each["involvedObject"]["name"] for each in events} == {"slice-0", "slice-1"}
