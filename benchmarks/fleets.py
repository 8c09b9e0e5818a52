"""Fleets and requests for benchmarks, drawn from a seed so that all runs measure the same."""

import random

from allocation.allocation import Charge
from allocation.constraints import Constraints, read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings

CARDS = 8
MEMORY_MIB = 81920
TFLOPS = 989
"""As an H100: so decisions count compute in both measures."""
ANY: Constraints = read_constraints({}, AllocationSettings())


def half_full(nodes: int, *, seed: int = 1) -> Ledger:
    """Return `nodes` nodes with 8 cards of 80 GiB each; about half of the cards hold a share."""
    chance = random.Random(seed)
    ledger = Ledger(rows=nodes)
    for number in range(nodes):
        ledger.set_node(inventory(number))
    for number in range(nodes):
        name = node(number)
        for at in range(CARDS):
            if chance.random() < 0.5:
                charge = Charge(_uuid(name, at), chance.choice((10000, 40000)), 300, 1)
                ledger.assume(f"old-{number}-{at}", name, (charge,))
    return ledger


def charge(uuid: str, memory_mib: int = 10000) -> Charge:
    """Return what a pod with a share of a card is charged."""
    return Charge(uuid, memory_mib, 300, 1)


def inventory(number: int) -> NodeInventory:
    """Return the cards of a node."""
    name = node(number)
    return NodeInventory(name, tuple(Card(_uuid(name, at), at, MEMORY_MIB, tflops=TFLOPS) for at in range(CARDS)))


def card(number: int) -> str:
    """Return the UUID of the first card of a node."""
    return _uuid(node(number), 0)


def node(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:06d}"


def request(memory_mib: int, cores: int = 100, *, tflops: int = 0) -> PodRequest:
    """Return the request of a pod with one container on one card; cores in millicards, TFLOPs in thousandths."""
    field = "spec.containers[0]"
    return PodRequest((ContainerRequest("main", Kind.REGULAR, field, 1, memory_mib, 0, cores, tflops=tflops),))


def mix(count: int) -> list[PodRequest]:
    """Return `count` different requests."""
    return [request(2000 + 500 * number, 50 + number % 5 * 100) for number in range(count)]


def _uuid(name: str, index: int) -> str:
    return f"GPU-{name}-{index}"
