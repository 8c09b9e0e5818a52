"""Which pods have a card that its node does not have any more. Pure: what pods hold and what agents report is given.

A node that does not report says nothing about its cards: its agent is silent, lists no card at all, could not read one
that is there, or has no driver.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation.ledger.ledger import Reservation
from cluster.gpu_node_status import GpuNodeStatus

_MIG_SUFFIX: Final = "["
"""Begins the place of a MIG instance behind the UUID of its card, as HAMi writes it."""


class Orphan(msgspec.Struct, frozen=True):
    """A pod that has cards which its node does not have.

    Attributes:
        uid: of the pod.
        node: its node.
        cards: the UUIDs of these cards, sorted.
    """

    uid: str
    node: str
    cards: tuple[str, ...]


def held_cards(reservations: Iterable[Reservation]) -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Return by node the UIDs of the bound pods with the cards that they have; a MIG instance counts as its card."""
    by_node: defaultdict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for each in reservations:
        if not each.assumed:
            cards = frozenset((charge.parent or charge.uuid).partition(_MIG_SUFFIX)[0] for charge in each.charges)
            by_node[each.node].append((each.uid, cards))
    return by_node


def present_cards(status: GpuNodeStatus | None) -> frozenset[str] | None:
    """Return the UUIDs of the cards that a node has, as its agent reports them.

    None if it reports none at all, or if it may have more than it reports, or if its driver is gone.
    """
    reported = status.status if status is not None else None
    if reported is None or reported.problem is not None or reported.incomplete is True:
        return None
    return frozenset(device.uuid for device in reported.devices if device.missing is not True)


def find(
    held: Mapping[str, Iterable[tuple[str, frozenset[str]]]], present: Mapping[str, frozenset[str] | None]
) -> list[Orphan]:
    """Return the pods that have a card which is not present on their node; nodes without a report are left out.

    What pods hold must have been read before what nodes report: a card that is added in between misses no pod.
    """
    orphans = []
    for node, pods in held.items():
        cards = present.get(node)
        if cards is not None:
            gone = ((uid, sorted(own - cards)) for uid, own in pods)
            orphans += [Orphan(uid, node, tuple(missing)) for uid, missing in gone if missing]
    return orphans
