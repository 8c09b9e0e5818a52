"""Which of some nodes take a pod's cards, and which cards those would be. Nothing is reserved here.

The loop and the extender's endpoints judge by this alone, so both modes give the same nodes, reasons and cards.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import placement, record
from allocation.allocation import Allocation, Charge, charges
from allocation.constraints import Constraints, read_constraints
from allocation.errors import AllocationError, OverCapacityError
from allocation.ledger import Ledger
from allocation.placement import Placement
from allocation.pod import Containers
from allocation.quota import Room
from allocation.reasons import NODE_UNREGISTERED
from allocation.rejection import Rejection
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.standing import UNFIT
from scheduler import static_allocation


class Wish(msgspec.Struct, frozen=True):
    """What a pod asks of cards.

    Attributes:
        request: by its resources.
        constraints: by its annotations.
        fixed: its static allocation, which admission let in from a trusted identity only.
    """

    request: PodRequest
    constraints: Constraints
    fixed: Allocation | None

    def __bool__(self) -> bool:
        """Whether it is any of a card's business."""
        return bool(self.request) or self.fixed is not None


class Judgement(msgspec.Struct, frozen=True):
    """Nodes judged.

    Attributes:
        scores: those that take the pod, with how good they are, best first.
        rejections: the others.
        allocation: the cards on the best; None where no node takes the pod, or it asks for none.
        charges: what they cost.
    """

    scores: dict[str, float]
    rejections: dict[str, Rejection]
    allocation: Allocation | None = None
    charges: tuple[Charge, ...] = ()


def read(spec: Containers, annotations: Mapping[str, str], settings: AllocationSettings) -> Wish:
    """Answer what a pod asks of cards.

    Raises:
        AllocationError: it cannot be read.
    """
    return Wish(
        request=read_request(spec, settings),
        constraints=read_constraints(annotations, settings),
        fixed=record.of_annotations(annotations),
    )


def judge(wish: Wish, nodes: Sequence[str], *, ledger: Ledger, shut: Mapping[str, Rejection], room: Room) -> Judgement:
    """Judge `nodes`; those in `shut` do not take the pod, and `room` is what the quotas of its namespace leave."""
    if not wish:
        return Judgement(dict.fromkeys(nodes, 0.0), {})
    shut = {name: shut[name] for name in nodes if name in shut} if shut else {}
    open_ = [name for name in nodes if name not in shut] if shut else nodes
    if wish.fixed is not None:
        return _judge_fixed(wish.request, wish.fixed, open_, shut, ledger=ledger)
    outcome = placement.place(ledger, wish.request, open_, constraints=wish.constraints, room=room)
    rejections = {**outcome.rejections, **shut}
    if not isinstance(outcome, Placement):
        return Judgement({}, rejections)
    return Judgement(outcome.scores, rejections, outcome.allocation, outcome.charges)


def worths(
    wish: Wish, nodes: Sequence[str], *, ledger: Ledger, shut: Mapping[str, Rejection], room: Room
) -> tuple[NDArray[np.float64], dict[str, Rejection]]:
    """Answer how good `judge` finds each of `nodes`, and its rejections.

    The more the better, and `UNFIT` where the node does not take the pod.
    """
    if not wish.request or wish.fixed is not None:
        judged = judge(wish, nodes, ledger=ledger, shut=shut, room=room)
        return np.array([judged.scores.get(name, UNFIT) for name in nodes]), judged.rejections
    found, rejections = placement.worths(ledger, wish.request, nodes, constraints=wish.constraints, room=room)
    if shut:
        found[[name in shut for name in nodes]] = UNFIT
        rejections |= {name: shut[name] for name in nodes if name in shut}
    return found, rejections


def _judge_fixed(
    request: PodRequest, fixed: Allocation, nodes: Sequence[str], shut: Mapping[str, Rejection], *, ledger: Ledger
) -> Judgement:
    elsewhere = Rejection(node_reason=f"static allocation is for node {fixed.node}", resolvable=False)
    rejections = {**{name: elsewhere for name in nodes if name != fixed.node}, **shut}
    if fixed.node not in nodes:
        return Judgement({}, rejections)
    cost = charges(fixed, request)
    refusal = _refusal(fixed, cost, ledger)
    if refusal is not None:
        return Judgement({}, {**rejections, fixed.node: refusal})
    return Judgement({fixed.node: 0.0}, rejections, fixed, cost)


def _refusal(fixed: Allocation, cost: Sequence[Charge], ledger: Ledger) -> Rejection | None:
    """Answer why the node of a static allocation cannot give it, None where it can."""
    inventory = ledger.inventory(fixed.node)
    wrong = NODE_UNREGISTERED if inventory is None else static_allocation.mismatch(fixed, inventory)
    if wrong:
        return Rejection(node_reason=f"static allocation on node {fixed.node}: {wrong}", resolvable=False)
    try:
        ledger.check(fixed.node, cost)
    except AllocationError as error:
        reason = f"static allocation on node {fixed.node}: {error}"
        return Rejection(node_reason=reason, resolvable=isinstance(error, OverCapacityError))
    return None
