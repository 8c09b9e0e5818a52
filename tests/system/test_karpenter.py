"""Karpenter brings nodes for slices, as many as they need, and takes those that are idle away."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from lab.client import client
from tests.system.conftest import Namespace, pod
from tests.system.support import karpenter
from tests.system.support.karpenter import CARD_MIB, CARDS, IDLE_SECONDS, LABELS, Cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.karpenter]
_SHAPES = (4_000, 9_000, 13_000, 20_000, 27_000, 40_000)
SLOTS = 10
BARE: dict[str, Any] = {}
PLUGIN = {"resource": "nvidia.com/gpu", "advertised": CARDS * SLOTS}
"""A device plugin on each machine that advertises each slot of its cards."""


@pytest.fixture(scope="module")
def cloud(tranche: Layout, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """Karpenter, with machines of four cards each and none at first, without device plugins or with them."""
    with karpenter.running(tranche, **request.param) as made:
        yield made


def asking(name: str, **limits: int) -> dict[str, Any]:
    """Return a pod that only the machines of the pool may run.

    It requests CPU, because Karpenter has to see that a node whose cards are full has no room for another request.
    """
    made = pod(name, **limits)
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
    made["spec"]["nodeSelector"] = LABELS
    return made


def running(namespace: Namespace) -> dict[str, str]:
    """Return the node of each pod that runs."""
    pods = [each for each in namespace.pods() if each.get("status", {}).get("phase") == "Running"]
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods}


@pytest.mark.parametrize("cloud", [BARE], indirect=True)
def test_a_slice_brings_a_node_from_zero_and_an_idle_node_goes(cloud: Cloud, namespace: Namespace) -> None:
    """A node with a slice stays however idle it seems to Karpenter; a second slice of the same size needs no other."""
    cloud.begin_without_nodes()
    namespace.create(asking("first", gpu=1, gpumem=4000))
    cloud.until(lambda: "first" in running(namespace), what="the first slice on a new node")
    namespace.create(asking("second", gpu=1, gpumem=4000))
    cloud.until(lambda: "second" in running(namespace), what="the second slice")
    nodes = cloud.nodes()
    assert set(running(namespace).values()) == set(nodes)
    assert len(nodes) == 1
    namespace.delete("pod", "first")
    cloud.until(lambda: are_complete(namespace), what="a complete node, because Karpenter takes away no other")
    looked_until = time.monotonic() + 5 * IDLE_SECONDS
    cloud.until(lambda: time.monotonic() > looked_until, what="several looks of Karpenter at its nodes")
    assert cloud.nodes() == nodes
    assert set(running(namespace)) == {"second"}
    namespace.delete("pod", "second")
    cloud.until(lambda: not cloud.nodes(), what="the end of the idle node")


@pytest.mark.parametrize("cloud", [BARE], indirect=True)
def test_as_many_nodes_come_as_random_slices_need(cloud: Cloud, namespace: Namespace) -> None:
    """For a hundred slices of random sizes (seed 1), as many nodes come as best fit would fill, within one."""
    chance, before = random.Random(1), cloud.brought  # noqa: S311 -- not for secrets
    sizes = [chance.choice(_SHAPES) for _ in range(100)]
    cloud.keep_idle_nodes()
    namespace.create(*(asking(f"slice-{number}", gpu=1, gpumem=size) for number, size in enumerate(sizes)))
    cloud.until(lambda: len(running(namespace)) == len(sizes), what=f"{len(sizes)} slices on nodes", seconds=300)
    assert abs(cloud.brought - before - needed(sizes)) <= 1


@pytest.mark.parametrize("cloud", [PLUGIN], indirect=True)
def test_a_node_comes_though_a_full_one_advertises_free_slots(cloud: Cloud, namespace: Namespace) -> None:
    """Sixteen slices fill the cards of the first node, and 24 of its slots are free."""
    slices = [f"slice-{number}" for number in range(4 * CARDS)]
    namespace.create(*(asking(name, gpu=1, gpumem=CARD_MIB // 4) for name in slices))
    cloud.until(lambda: len(running(namespace)) == len(slices), what="a full node")
    (full,) = cloud.nodes()
    namespace.create(asking("one-more", gpu=1, gpumem=CARD_MIB // 4))
    cloud.until(lambda: "one-more" in running(namespace), what="a slice on another node")
    assert running(namespace)["one-more"] != full
    cloud.until(lambda: are_complete(namespace), what="complete nodes")


def are_complete(namespace: Namespace) -> bool:
    """Whether all nodes have what Karpenter expects of them."""
    return all(_is(each, "Initialized") for each in client(namespace.layout).list("nodeclaims"))


def needed(sizes: list[int]) -> int:
    """Return how many nodes slices fill if each takes the card that it fits best, or a new node if it fits none."""
    free: list[int] = []
    for size in sizes:
        fitting = [card for card, left in enumerate(free) if left >= size]
        if not fitting:
            free += [CARD_MIB] * CARDS
            fitting = [len(free) - 1]
        free[min(fitting, key=lambda card: free[card])] -= size
    return len(free) // CARDS


def _is(claim: dict[str, Any], condition: str) -> bool:
    conditions = claim.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == (condition, "True") for each in conditions)
