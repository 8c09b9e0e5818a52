"""GPUBindings behind a stock kube-scheduler: it places pods of applications where the extender says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import fleet
from lab.client import client
from lab.files import write_private
from tests.support import namespaces
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, pairs
from tests.system.support.gpubindings import binding, labels, placed
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODES = ["node-a", "node-b"]
APP = "comfyui"


@pytest.fixture(scope="module")
def extended(uts_support: None, empty_cluster: Layout) -> Layout:
    """Two nodes and one pair, in mode required."""
    pairs.up(empty_cluster, NODES)
    client(empty_cluster).apply(*gpubindings.component())
    file = empty_cluster.config / "tranche.yaml"
    configuration = yaml.safe_load(file.read_text())
    write_private(file, yaml.safe_dump({**configuration, "allocation": {"bindings": {"mode": "required"}}}))
    Pair(empty_cluster, 0).start()
    return empty_cluster


@pytest.fixture
def namespace(extended: Layout) -> Namespace:
    """The opted-in namespace of alice."""
    namespaces.create(extended, "alice", {"gpu.scheduling/injection": "enabled"})
    return Namespace(extended, "alice")


def cards(placed: dict[str, Any]) -> set[str]:
    """Return the UUIDs of a pod's cards."""
    containers = json.loads(placed["metadata"]["annotations"]["gpu.scheduling/allocation"])["containers"]
    return {share["uuid"] for shares in containers.values() for share in shares}


def test_kube_scheduler_places_pods_on_the_cards_of_their_application(extended: Layout, namespace: Namespace) -> None:
    """All bound cards of one node, though one is requested; the next pod takes the next node; the third waits."""
    bound = {"node-a": {0, 3}, "node-b": {5}}
    own = {node: {fleet.card(node, index) for index in indexes} for node, indexes in bound.items()}
    client(extended).apply(
        *(
            binding(f"alices-{node}-{index}", fleet.card(node, index), APP, owner="alice", namespace="alice")
            for node, indexes in bound.items()
            for index in indexes
        ),
        binding("bobs", fleet.card("node-b", 0), APP, owner="bob", namespace="bob"),
    )
    for name, node in (("first", "node-a"), ("second", "node-b")):
        namespace.create(pod(name, labels=labels(APP, "alice"), gpu=1))
        found = placed(namespace, name)
        assert found["spec"]["nodeName"] == node
        assert cards(found) == own[node]
    namespace.create(pod("third", labels=labels(APP, "alice"), gpu=1), pod("stranger", gpu=1))
    assert "0 of 2 cards bound to app comfyui of alice left, 2 needed" in namespace.unplaced("third")
    assert "pod has no owner application" in namespace.unplaced("stranger")
    # The end of a pod gives its cards to the next pod of the application.
    namespace.delete("pod", "first")
    assert cards(placed(namespace, "third")) == own["node-a"]
    # kube-scheduler watches no bindings, and tries the pods of another application as soon as it has one.
    namespace.create(pod("fourth", labels=labels("later", "alice"), gpu=1))
    assert "no card bound to app later of alice" in namespace.unplaced("fourth")
    card = fleet.card("node-b", 6)
    client(extended).apply(binding("later", card, "later", owner="alice", namespace="alice"))
    assert cards(placed(namespace, "fourth", timeout_s=pairs.SOON_S)) == {card}
