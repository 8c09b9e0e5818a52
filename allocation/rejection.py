"""Why a node does not take a pod: a reason for each card, or one for the whole node."""

from collections import Counter
from typing import Final

import msgspec
import numpy as np

from allocation.fit import ABSENT, Verdicts
from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason, summary
from allocation.request import ContainerRequest


class Rejection(msgspec.Struct, frozen=True):
    """Why a node does not take the pod.

    Attributes:
        container: the container that does not fit, empty where the node as a whole does not.
        cards: how many cards the node has.
        counts: cards by reason; they sum to `cards`.
        node_reason: set where no card was judged.
        resolvable: whether it could be cured by pods that finish or are evicted.
        judged: one int8 for each card, as it was judged; empty where no card was.
    """

    container: str = ""
    cards: int = 0
    counts: dict[CardReason, int] = {}
    node_reason: str = ""
    resolvable: bool = True
    judged: bytes = b""

    @property
    def verdicts(self) -> tuple[CardReason, ...]:
        """Why each card of the node does not help the container, by position."""
        codes = (code for code in np.frombuffer(self.judged, np.int8).tolist() if code != ABSENT)
        return tuple(CardReason(code or CardReason.AllocatedCardsInsufficientRequest) for code in codes)

    def __str__(self) -> str:
        """As HAMi prints it: `8/8 CardInsufficientMemory`."""
        return self.node_reason or summary(self.counts, self.cards)


UNREGISTERED: Final = Rejection(node_reason=NODE_UNREGISTERED, resolvable=False)
"""No inventory of the node is known."""


def of_cards(judged: Verdicts, container: ContainerRequest, *, curable: bool) -> Rejection:
    """Answer why the cards of one node are too few for a container.

    `curable` says that they would be enough if nobody had anything of them.
    """
    cards = int((judged != ABSENT).sum())
    if container.count > cards:
        return Rejection(
            container.name, cards, node_reason=NODE_INSUFFICIENT_DEVICE, resolvable=False, judged=judged.tobytes()
        )
    codes = Counter(judged.tolist())
    codes.pop(ABSENT, None)
    counts = {CardReason(code): count for code, count in codes.items()}
    few = counts.pop(CardReason.FITS, 0)
    if few:
        counts[CardReason.AllocatedCardsInsufficientRequest] = few
    return Rejection(container.name, cards, counts, resolvable=curable, judged=judged.tobytes())
