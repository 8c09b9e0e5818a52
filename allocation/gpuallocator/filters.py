"""The stages by which cards are left out, in TensorFusion's order, over the scheduler's own verdicts on each card."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from allocation import label_selector
from allocation.errors import AllocationError
from allocation.gpuallocator.requests import VENDOR, AllocRequest
from allocation.inventory import Card
from allocation.ledger.ledger import Ledger
from allocation.placement.fit import ConstraintMasks, verdicts
from allocation.placement.query import ContainerQuery
from allocation.reasons import CardReason

_STAGE_OF: Final = {
    CardReason.CardNotHealth: "Phase",
    CardReason.CardCordoned: "Phase",
    CardReason.ModeNotFit: "IsolationMode",
    CardReason.CardMigTopologyInfeasible: "IsolationMode",
    CardReason.CardTypeMismatch: "PartitionTemplate",
}
"""The stage of a verdict; of any other it is SharedWholeGPU for a request of whole cards, and otherwise Resource."""


class SimulateSchedulingFilterDetail(msgspec.Struct, frozen=True, rename="pascal"):
    """One stage: the names of the cards before and after it, and how many it left out."""

    filter_name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    diff: int


Details = tuple[SimulateSchedulingFilterDetail, ...]


class NoCardsError(AllocationError):
    """No card, or too few on any node, passes the filters.

    Attributes:
        details: of each stage, if they were asked for.
    """

    def __init__(self, message: str, details: Details = ()) -> None:
        """Describe what is missing."""
        self.details = details
        super().__init__(message)


class _Candidate(msgspec.Struct, frozen=True):
    name: str
    node: str
    card: Card
    verdict: CardReason


class Cluster(msgspec.Struct, frozen=True):
    """What the stages read.

    Attributes:
        ledger: the cards.
        labels: of the nodes.
    """

    ledger: Ledger
    labels: Mapping[str, Mapping[str, str]]


def apply(
    cluster: Cluster, request: AllocRequest, gpus: Collection[str], *, simulate: bool
) -> tuple[tuple[str, ...], Details]:
    """Return the names of the cards among `gpus` that pass every stage, by node and index, with the details.

    Nothing is changed. The stages stop as soon as no card is left; without `simulate` there are no details.

    Raises:
        NoCardsError: several cards are requested, and fewer pass on every node.
    """
    left, details = _candidates(cluster, request, gpus), list[SimulateSchedulingFilterDetail]()
    for name, keeps in _stages(cluster, request):
        if not left:
            break
        before, left = left, [each for each in left if keeps(each)]
        _note(details, name, before, left, simulate=simulate)
    if request.count > 1 and left:
        before, left = left, _on_one_node(left, request.count)
        _note(details, "SameNode", before, left, simulate=simulate)
        if not left:
            raise NoCardsError(f"fewer than {request.count} GPUs that fit on any node", tuple(details))
    return tuple(each.name for each in left), tuple(details)


def _candidates(cluster: Cluster, request: AllocRequest, gpus: Collection[str]) -> list[_Candidate]:
    """Return the cards with the verdicts of `allocation.placement.fit`, which are the scheduler's."""
    ledger, wanted = cluster.ledger, frozenset(gpus)
    rows = ledger.order()
    cards = ConstraintMasks(ledger, request.constraints).cards(rows)
    query = ContainerQuery(request.container, card_kind=request.constraints.card_kind, isolation=request.isolation)
    codes = verdicts(cards, query).tolist()
    found = []
    for node, judged in zip(ledger.names(rows), codes, strict=True):
        inventory = ledger.inventory(node)
        for card, code in zip(inventory.cards if inventory is not None else (), judged, strict=False):
            if card.uuid in wanted:
                found.append(_Candidate(card.uuid, node, card, CardReason(code)))
    return found


Keeps = Callable[[_Candidate], bool]


def _stages(cluster: Cluster, request: AllocRequest) -> Iterable[tuple[str, Keeps]]:
    """Yield the stages but the last in their order; those that the request does not name are left out."""
    rest = "SharedWholeGPU" if request.isolation == "shared" else "Resource"

    def passes(stage: str) -> Keeps:
        return lambda each: not each.verdict or _STAGE_OF.get(each.verdict, rest) != stage

    yield "IsolationPolicy", lambda each: cluster.ledger.permits(request.isolation, each.name)
    yield "Phase", passes("Phase")
    if request.indices:
        yield "Index", lambda each: each.card.index in request.indices
    yield "IsolationMode", passes("IsolationMode")
    if request.isolation == "shared":
        yield "SharedWholeGPU", passes("SharedWholeGPU")
    if request.isolation == "partitioned":
        yield "PartitionTemplate", passes("PartitionTemplate")
    yield "Resource", passes("Resource")
    if request.model:
        yield "Model", lambda each: each.card.model == request.model
    if request.vendor:
        yield "Vendor", lambda _: request.vendor == VENDOR
    if request.pod.affinity:
        yield (
            "NodeAffinity",
            lambda each: label_selector.accepts(request.pod.affinity, cluster.labels.get(each.node, {})),
        )


def _on_one_node(cards: list[_Candidate], count: int) -> list[_Candidate]:
    """Return the cards of the nodes that have `count`."""
    by_node: dict[str, list[_Candidate]] = {}
    for each in cards:
        by_node.setdefault(each.node, []).append(each)
    return [each for own in by_node.values() if len(own) >= count for each in own]


def _note(
    details: list[SimulateSchedulingFilterDetail],
    name: str,
    before: list[_Candidate],
    after: list[_Candidate],
    *,
    simulate: bool,
) -> None:
    if simulate:
        old, new = (tuple(each.name for each in cards) for cards in (before, after))
        details.append(SimulateSchedulingFilterDetail(name, old, new, len(old) - len(new)))
