"""Ledgers and requests for tests; each test states only what matters to it."""

from allocation import names
from allocation.constraints import read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import NoPlacement, Placement, place
from allocation.placement.query import PlacementQuery
from allocation.quota import UNLIMITED, Headroom
from allocation.request import MILLI_PER_TFLOP, ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.steps import finish

KEYS = {
    "node_policy": names.NODE_POLICY,
    "card_policy": names.CARD_POLICY,
    "weights": names.WEIGHTS,
    "use_uuids": names.USE_UUIDS,
    "avoid_uuids": names.AVOID_UUIDS,
    "use_types": names.USE_TYPES,
    "avoid_types": names.AVOID_TYPES,
    "numa_bind": names.NUMA_BIND,
    "mode": names.MODE,
}


def fleet(nodes: int = 1, *, cards: int = 8, **changes: object) -> Ledger:
    """Return a ledger of equal nodes n0, n1, … with cards of 81920 MiB and 10 slots."""
    ledger = Ledger()
    for node in range(nodes):
        ledger.set_node(
            NodeInventory(
                f"n{node}",
                tuple(
                    Card(**{"uuid": f"GPU-n{node}-{index}", "index": index, "memory_mib": 81920, **changes})  # type: ignore[arg-type]
                    for index in range(cards)
                ),
            )
        )
    return ledger


def pod(*containers: ContainerRequest) -> PodRequest:
    """Return the request of a pod with these containers."""
    return PodRequest(containers)


def container(
    name: str = "main",
    kind: Kind = Kind.REGULAR,
    *,
    count: int = 1,
    memory: int = 0,
    percent: int = 0,
    cores: int = 0,
    tflops: int = 0,
) -> ContainerRequest:
    """Return a container's request; cores in millicards, and instead of them whole TFLOPs."""
    milli = tflops * MILLI_PER_TFLOP
    return ContainerRequest(name, kind, name, count, memory or None, percent, 0 if tflops else cores, tflops=milli)


def whole(count: int = 1) -> ContainerRequest:
    """Return the request of a container for cards of its own, as an Exclusive claim makes it."""
    return ContainerRequest("main", Kind.REGULAR, "main", count, None, 100, 1000, whole=True)


def put(
    ledger: Ledger,
    request: PodRequest,
    *,
    headroom: Headroom = UNLIMITED,
    serial: list[int] = [0],  # noqa: B006 -- counts over the calls of a test run
    **annotations: str,
) -> Placement | NoPlacement:
    """Place and reserve a pod; `annotations` are by the short names of `KEYS`."""
    constraints = read_constraints({KEYS[name]: value for name, value in annotations.items()}, AllocationSettings())
    outcome = finish(place(LedgerView(ledger), PlacementQuery(request, constraints, headroom), ledger.nodes))
    if isinstance(outcome, Placement):
        serial[0] += 1
        ledger.assume(f"pod-{serial[0]}", outcome.allocation.node, outcome.charges)
    return outcome


def reasons(outcome: Placement | NoPlacement, node: str = "n0") -> str:
    """Return the reasons of a node that rejected the pod."""
    assert isinstance(outcome, NoPlacement)
    return str(outcome.rejections[node])


def cards_of(outcome: Placement | NoPlacement, name: str = "main") -> list[int]:
    """Return the indexes of a container's cards."""
    assert isinstance(outcome, Placement)
    return [share.index for share in outcome.allocation.containers[name]]


def mixed(*cards: Card) -> Ledger:
    """Return a ledger of one node n0 with these cards."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", cards))
    return ledger


def card(index: int, **changes: object) -> Card:
    """Return a card of node n0."""
    fields = {"uuid": f"GPU-n0-{index}", "index": index, "memory_mib": 1000, **changes}
    return Card(**fields)  # type: ignore[arg-type]
