"""What holds of containers that share a card: the same on a node of stubs and on a machine with a GPU."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.names import ISOLATION
from allocation.request import PodRequest
from allocation.wire import environment
from benchmarks import cluster
from tests.cuda.programs import Container

SHARED = [Isolation.CUDA, Isolation.MPS, Isolation.HAMI_CORE]
"""What can enforce the limits of containers that share a card."""
SMALL, LARGE = 3000, 5000
"""MiB of two containers that fit on one card."""


class Node(Protocol):
    """A node on which containers are started.

    Attributes:
        cards: the MiB of each card by UUID, in the order of the node.
        slack_mib: how much less than its limit a process may get, because CUDA itself takes memory.
    """

    cards: Mapping[str, int]
    slack_mib: int

    def start(self, name: str, environment: Mapping[str, str], *, preload: bool = False) -> Container:
        """Start a container; `preload` loads HAMi-core."""

    def remove(self, name: str) -> None:
        """End a container."""


def references(isolation: Isolation, cards: int) -> dict[str, str]:
    """Return the annotation key of each variable that admission writes into the container of a pod."""
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": "1"}
    spec = {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]}
    pod = cluster.prepared({"metadata": {"name": "p", "annotations": {ISOLATION: isolation.value}}, "spec": spec})
    paths = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in pod["spec"]["containers"][0]["env"]
        if "valueFrom" in each
    }
    return {name: path.removeprefix("metadata.annotations['").removesuffix("']") for name, path in paths.items()}


def injected(isolation: Isolation, *shares: CardShare, resized: int = 0) -> dict[str, str]:
    """Return the environment of a container with these shares, as its kubelet resolves it."""
    annotations = environment.annotations(Allocation("n", {"main": shares}), isolation=isolation)
    if resized:
        after = tuple(CardShare(each.uuid, each.index, resized, each.cores) for each in shares)
        annotations |= environment.resize_annotations(Allocation("n", {"main": after}), PodRequest((), isolation))
    return environment.resolve(references(isolation, len(shares)), annotations)


def start(node: Node, name: str, isolation: Isolation, values: Mapping[str, str]) -> Container:
    """Start a container; HAMi's plugin, or its image, loads HAMi-core."""
    return node.start(name, values, preload=isolation is Isolation.HAMI_CORE)


def share(node: Node, mib: int = SMALL, *, card: int = 0, cores: int = 300) -> CardShare:
    """Return a share of a card of the node, by its position."""
    return CardShare([*node.cards][card], card, mib, cores)


def reaches(node: Node, got: Sequence[int], *limits: int) -> bool:
    """Whether a process got of each card what its limit is, and no more."""
    return len(got) == len(limits) and all(
        limit - node.slack_mib <= mib <= limit for mib, limit in zip(got, limits, strict=True)
    )


def two_containers_of_one_card_reach_their_own_limits(node: Node, isolation: Isolation) -> None:
    """Neither takes what the other was promised, whichever comes first."""
    first = start(node, "first", isolation, injected(isolation, share(node)))
    second = start(node, "second", isolation, injected(isolation, share(node, LARGE)))
    mib = first.run().mib, second.run().mib
    node.remove("first")
    node.remove("second")
    assert reaches(node, mib[0], SMALL), mib
    assert reaches(node, mib[1], LARGE), mib


def a_restarted_container_has_the_same_limit(node: Node, isolation: Isolation) -> None:
    """And all of it: what the former one had is given back."""
    for _ in range(2):
        mib = start(node, "c", isolation, injected(isolation, share(node))).run().mib
        node.remove("c")
        assert reaches(node, mib, SMALL), mib


def a_container_sees_its_own_cards_in_order(node: Node, isolation: Isolation) -> None:
    """CUDA itself says which they are, by their UUIDs, whether the environment names them by UUID or by position."""
    shares = [share(node, card=position) for position in range(min(len(node.cards), 2))]
    shown = start(node, "c", isolation, injected(isolation, *shares)).run().cards
    node.remove("c")
    assert [card.uuid for card in shown] == [each.uuid.partition("-")[2] for each in shares]


def mps_leaves_a_client_its_share_of_the_compute(node: Node) -> None:
    """CUDA shows the multiprocessors that the thread percentage leaves; the driver rounds to what the card can."""
    whole, part = (
        start(node, "c", Isolation.MPS, injected(Isolation.MPS, share(node, cores=cores))).run().cards[0].processors
        for cores in (1000, 300)
    )
    node.remove("c")
    assert 0.2 * whole <= part <= 0.4 * whole, (part, whole)


def hami_core_shows_the_limit_as_the_memory_of_the_card(node: Node) -> None:
    """Frameworks that size their caches by it stay within their share."""
    (card,) = start(node, "c", Isolation.HAMI_CORE, injected(Isolation.HAMI_CORE, share(node))).run().cards
    node.remove("c")
    assert card.total_mib == SMALL
