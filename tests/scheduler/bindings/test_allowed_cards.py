"""What an application's binding gives of a card is compared with what one pod may have, card by card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from allocation.bindings.bound_cards import BoundCard, BoundCards
from allocation.constraints import read_constraints
from allocation.reasons import PodReason
from allocation.request import ContainerRequest, PodRequest
from allocation.settings import AllocationSettings
from scheduler.bindings.allowed_cards import within_quotas
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError
from tests.allocation.support.binding import bound, bound_card
from tests.allocation.support.builders import card, container, fleet, mixed
from tests.allocation.support.mig_cards import instance, mig_card

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocation.ledger.ledger import Ledger

SIDE = container("side", count=0)


class Quota:
    """The most memory of each card, and the most cards.

    Attributes:
        asked: the MiB of each card, the number of cards, and whether it is for an instance, in the order of the calls.
    """

    def __init__(self, *, memory_mib: int = 10**6, cards: int = 100) -> None:
        self._most = (memory_mib, cards)
        self.asked: list[tuple[int, int, bool]] = []

    def __call__(self, request: PodRequest, *, card_mib: Callable[[], int], is_instance: bool) -> None:
        """See MayHave."""
        main, side = request.containers
        assert side == SIDE
        memory = main.memory_on(card_mib())
        self.asked.append((memory, main.count, is_instance))
        if memory > self._most[0] or main.count > self._most[1]:
            raise WaitingPodError(PodReason.PodHeld, f"{memory} MiB of {main.count} cards")


def allowed(ledger: Ledger, cards: BoundCards, quota: Quota, main: ContainerRequest | None = None) -> list[str]:
    """Return the UUIDs of the cards that a pod may have, which requests one whole card unless more is said."""
    own = PodRequest((main or container(percent=100), SIDE))
    requirements = GpuRequirements(own, read_constraints({}, AllocationSettings()), None, own)
    left = within_quotas(requirements, cards, ledger, quota)
    assert msgspec.structs.replace(left, cards=cards.cards) == cards
    return [each.uuid for each in left.cards]


def sliced(*megabytes: int, node: str = "n0") -> tuple[BoundCard, ...]:
    """Return bound cards of a node of which pods get this much memory."""
    return tuple(bound_card(f"GPU-{node}-{at}", "memory-slicing", memory=mib) for at, mib in enumerate(megabytes))


def test_cards_that_give_more_than_a_pod_may_have_are_left_out() -> None:
    """What the binding says counts, not what the pod requests."""
    quota = Quota(memory_mib=2000)
    cards = bound("single", *sliced(2000, 2001, 500))
    assert allowed(fleet(cards=3), cards, quota) == ["GPU-n0-0", "GPU-n0-2"]
    assert quota.asked == [(2000, 1, False), (2001, 1, False), (500, 1, False)]


def test_with_policy_all_one_such_card_excludes_its_node() -> None:
    """The pod would get all bound cards of a node together, so their number counts as well."""
    here, there = sliced(100, 3000), sliced(100, 100, node="n1")
    cards = bound("all", *here, *there)
    assert allowed(fleet(2, cards=2), cards, Quota(memory_mib=2000)) == ["GPU-n1-0", "GPU-n1-1"]
    quota = Quota(cards=1)
    assert allowed(fleet(2, cards=2), bound("all", *here, there[0]), quota) == ["GPU-n1-0"]
    assert [count for _, count, _ in quota.asked] == [2, 2, 1]
    assert allowed(fleet(2, cards=2), bound("single", *here), Quota(cards=1)) == ["GPU-n0-0", "GPU-n0-1"]


def test_a_part_of_a_card_is_that_of_its_own_memory() -> None:
    """An exclusive card is given whole, however large the card or instance is."""
    slice_ = instance(1, "1g.5gb", 0)
    ledger = mixed(card(0, memory_mib=16000), mig_card(1), slice_, card(2, memory_mib=81920))
    cards = [bound_card(f"GPU-n0-{at}", "exclusive") for at in (0, 2)]
    cards.append(BoundCard(bound_card("GPU-n0-1").grant, is_instance=True))
    quota = Quota(memory_mib=16000)
    assert allowed(ledger, bound("single", *cards), quota, container(percent=10)) == ["GPU-n0-0", "GPU-n0-1"]
    assert quota.asked == [(16000, 1, False), (81920, 1, False), (4096, 1, True)]


def test_a_pod_that_may_have_none_of_its_cards_is_told_the_first_reason() -> None:
    """It waits; cards that no node reports may come, and are kept."""
    with pytest.raises(WaitingPodError, match="3000 MiB of 1 cards"):
        allowed(fleet(cards=2), bound("single", *sliced(3000, 4000)), Quota(memory_mib=2000))
    absent = bound_card("GPU-n9-0", "memory-slicing", memory=9000)
    assert allowed(fleet(cards=1), bound("single", *sliced(3000), absent), Quota(memory_mib=2000)) == ["GPU-n9-0"]
