"""Why a node does not take a pod: one reason for each card, or one for the whole node."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from allocation.placement.fit import ABSENT, Verdicts
from allocation.quota import Headroom
from allocation.reasons import CardReason, NodeReason, NodeRejection, summary
from allocation.request import ContainerRequest, PodRequest


class Rejection(msgspec.Struct, frozen=True):
    """Why a node does not take the pod.

    Attributes:
        container: the container that does not fit, empty where the node as a whole does not take the pod.
        cards: how many cards the node has.
        counts: cards by reason; they sum to `cards`.
        node: the reason of the node as a whole; None where its cards are the reason.
        resolvable: whether pods that finish or are evicted could change it.
        judged: one int8 for each card, its verdict; empty where no card was evaluated.
        quota: the limits of the namespace that the pod would exceed, in words; empty where they are not the reason.
    """

    container: str = ""
    cards: int = 0
    counts: dict[CardReason, int] = {}
    node: NodeRejection | None = None
    resolvable: bool = True
    judged: bytes = b""
    quota: str = ""

    @property
    def verdicts(self) -> tuple[CardReason, ...]:
        """Why each card of the node does not help the container, by position."""
        codes = (code for code in np.frombuffer(self.judged, np.int8).tolist() if code != ABSENT)
        return tuple(CardReason(code or CardReason.AllocatedCardsInsufficientRequest) for code in codes)

    def __str__(self) -> str:
        """Return the reasons as HAMi prints them: `8/8 CardInsufficientMemory`."""
        return self.node.text if self.node is not None else summary(self.counts, self.cards)

    @property
    def coded_text(self) -> str:
        """The reasons of cards, which are codes, or that of the node after its code."""
        return self.node.coded_text if self.node is not None else str(self)

    @property
    def public_coded_text(self) -> str:
        """The same as `coded_text` without the name of another pod."""
        return self.node.public_coded_text if self.node is not None else str(self)

    @property
    def public_text(self) -> str:
        """The reasons and the exceeded quota, without the name of another pod."""
        text = self.node.public_text if self.node is not None else str(self)
        return f"{text} ({self.quota})" if self.quota else text


def of_node(node: NodeRejection) -> Rejection:
    """Return the rejection by a node as a whole."""
    return Rejection(node=node, resolvable=node.resolvable)


UNREGISTERED: Final = of_node(NodeRejection(NodeReason.NodeUnregistered, resolvable=False))
"""The rejection by a node whose inventory is unknown."""
_INSUFFICIENT_DEVICE: Final = NodeRejection(NodeReason.NodeInsufficientDevice, resolvable=False)


def of_cards(judged: Verdicts, container: ContainerRequest, *, resolvable: bool) -> Rejection:
    """Return the rejection by a node whose cards are too few for a container.

    `resolvable` says whether they would be enough if no pod used any of them.
    """
    cards = int((judged != ABSENT).sum())
    if container.count > cards:
        return Rejection(container.name, cards, node=_INSUFFICIENT_DEVICE, resolvable=False, judged=judged.tobytes())
    codes = Counter(judged.tolist())
    codes.pop(ABSENT, None)
    counts = {CardReason(code): count for code, count in codes.items()}
    few = counts.pop(CardReason.FITS, 0)
    if few:
        counts[CardReason.AllocatedCardsInsufficientRequest] = few
    return Rejection(container.name, cards, counts, resolvable=resolvable, judged=judged.tobytes())


def codes(rejections: Iterable[Rejection], nodes: Iterable[NodeRejection]) -> frozenset[str]:
    """Return the codes of all `rejections`, and of those by other `nodes` as a whole."""
    of_nodes = {each.code for each in nodes}
    of_cards: set[CardReason] = set()
    for each in rejections:
        if each.node is not None:
            of_nodes.add(each.node.code)
        else:
            of_cards.update(each.counts)
    return frozenset({*(reason.name for reason in of_cards), *(reason.value for reason in of_nodes)})


def naming_quota(rejections: dict[str, Rejection], request: PodRequest, headroom: Headroom) -> dict[str, Rejection]:
    """Add the exceeded limits to the rejections for a quota; nodes that share a rejection still share one."""
    if not headroom.is_limited:
        return rejections
    quota = headroom.excess(request)
    named: dict[int, Rejection] = {}
    for each in rejections.values():
        if CardReason.ResourceQuotaNotFit in each.counts and id(each) not in named:
            named[id(each)] = msgspec.structs.replace(each, quota=quota)
    return {name: named.get(id(each), each) for name, each in rejections.items()}
