"""The MIG instances of one node that are made for the scheduler, and unmade.

`spec` of the GpuNodeStatus is the list of what it wants, `status.migInstances` the list of what was made for it. A wish
is written into the latter before its instance is made, so that after a crash at any point somebody knows whose the
instance is: what is in no list was made by an administrator and is never touched. Without a list in `spec` nothing is
destroyed.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from agent.inventory import InventorySource, PartitionError
from agent.report import NodeReport
from allocation.inventory import Card
from allocation.mig import Wish
from cluster.gpu_node_status import Status
from cluster.mig_status import WishStatus

log = logging.getLogger(__name__)

_LONGEST_MESSAGE: Final = 1024


class Partitions:
    """What is wanted, what was accepted, and what the API server knows of the latter.

    Attributes:
        is_ready: whether it is known what was accepted before this process began.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._wanted: tuple[Wish, ...] | None = None
        self._accepted: dict[str, WishStatus] = {}
        self._announced: frozenset[str] = frozenset()
        self.is_ready = False

    def recall(self, status: Status | None) -> None:
        """Take what an earlier process has written."""
        if status is not None and status.mig_instances is not msgspec.UNSET:
            self._accepted = {each.id: each for each in status.mig_instances}
        self._announced = frozenset(self._accepted)
        self.is_ready = True

    def want(self, wishes: tuple[Wish, ...] | None) -> bool:
        """Take what the scheduler wants now, None where it has not said; answer whether that is new."""
        is_new = wishes != self._wanted
        self._wanted = wishes
        return is_new

    def announced(self, report: NodeReport) -> bool:
        """Take that the API server has `report`; answer whether something may be made now."""
        ids = frozenset(each.id for each in report.mig_instances)
        is_new = not ids <= self._announced
        self._announced = ids
        return is_new

    def step(self, source: InventorySource, report: NodeReport) -> bool:
        """Accept, make and destroy what is due, `report` being what there is; answer whether any card has changed."""
        if not self.is_ready or self._wanted is None:
            return False
        there = _instances(report)
        self._accept({device.card.uuid: device.card for device in report.devices}, there)
        wanted = {wish.id for wish in self._wanted}
        changed = False
        for each in tuple(self._accepted.values()):
            if each.id not in wanted:
                changed |= self._destroy(source, each)
            elif not each.refused and (each.card, each.slices) not in there and each.id in self._announced:
                changed |= self._create(source, each)
        return changed

    def mark(self, report: NodeReport) -> NodeReport:
        """Answer `report` with the wishes that were accepted, each named at its instance."""
        made = {(each.card, each.slices): each.id for each in self._accepted.values() if not each.refused}
        devices = []
        for device in report.devices:
            instance = device.card.instance
            wish = made.get((instance.parent, instance.slices)) if instance is not None and instance.slices else None
            if instance is not None and wish:
                card = msgspec.structs.replace(device.card, instance=msgspec.structs.replace(instance, wish=wish))
                devices.append(msgspec.structs.replace(device, card=card))
            else:
                devices.append(device)
        return msgspec.structs.replace(
            report, devices=tuple(devices), mig_instances=tuple(self._accepted[key] for key in sorted(self._accepted))
        )

    def _accept(self, cards: Mapping[str, Card], there: frozenset[object]) -> None:
        for wish in self._wanted or ():
            if wish.id in self._accepted:
                continue
            problem = _refusal(wish, cards.get(wish.card))
            if not problem and (wish.card, wish.slices) in there:
                problem = f"an instance that was not made for a wish lies at {wish.slices.start} of card {wish.card}"
            self._accepted[wish.id] = WishStatus(
                wish.id, wish.card, wish.profile, wish.slices, problem, refused=bool(problem)
            )
            log.info(
                "wish %s for %s on card %s of node %s: %s",
                *(wish.id, wish.profile, wish.card, self._node, problem or "accepted"),
            )

    def _create(self, source: InventorySource, accepted: WishStatus) -> bool:
        try:
            source.create(self._node, accepted.wish)
        except PartitionError as error:
            self._note(accepted, str(error))
            return False
        log.info("made %s on card %s of node %s for wish %s", *_words(accepted), self._node, accepted.id)
        self._note(accepted, "")
        return True

    def _destroy(self, source: InventorySource, accepted: WishStatus) -> bool:
        if not accepted.refused:
            try:
                source.destroy(self._node, accepted.wish)
            except PartitionError as error:
                self._note(accepted, f"not wanted any more, but: {error}")
                return False
            log.info("destroyed %s on card %s of node %s, made for %s", *_words(accepted), self._node, accepted.id)
        del self._accepted[accepted.id]
        return not accepted.refused

    def _note(self, accepted: WishStatus, message: str) -> None:
        message = message[:_LONGEST_MESSAGE]
        if message and message != accepted.message:
            log.warning("wish %s on node %s: %s", accepted.id, self._node, message)
        self._accepted[accepted.id] = msgspec.structs.replace(accepted, message=message)


def _words(accepted: WishStatus) -> tuple[str, str]:
    return accepted.profile, accepted.card


def _instances(report: NodeReport) -> frozenset[object]:
    """Answer card and place of each instance that there is."""
    cards = [device.card.instance for device in report.devices]
    return frozenset((each.parent, each.slices) for each in cards if each is not None)


def _refusal(wish: Wish, card: Card | None) -> str:
    """Answer why nothing will be made for a wish, empty where it will."""
    if card is None:
        return f"the node has no card {wish.card}"
    if card.instances_by != "agent" or not card.is_divided:
        return f"card {wish.card} is not in MIG mode with instances by the agent"
    places = [place for each in card.mig_profiles if each.name == wish.profile for place in each.placements]
    if wish.slices not in places:
        return f"card {wish.card} has no place for profile {wish.profile} at {wish.slices.start}"
    return ""
