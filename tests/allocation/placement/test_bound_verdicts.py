"""The verdicts on cards that are bound to an application are about what the pod gets of each, not what it requests."""

import pytest

from allocation.bindings.binding import AppIdentity
from allocation.bindings.bound_cards import BoundCard, BoundCards
from allocation.bindings.grants import Grant
from allocation.constraints import read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement import bound_placement, card_verdicts
from allocation.placement.card_verdicts import Trial
from allocation.placement.placement import place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.reasons import CardReason
from allocation.settings import AllocationSettings
from tests.allocation.support.builders import container, pod

TOTAL_MIB = 1000


def trial_of(*memory_mib: int | None, requested: int = 100) -> Trial:
    """Return the trial of a container on a node whose cards are all bound, with this memory of each by its binding."""
    ledger = Ledger()
    cards = tuple(Card(f"GPU-{index}", index, TOTAL_MIB, slots=4) for index in range(len(memory_mib)))
    ledger.set_node(NodeInventory("n0", cards))
    bound = BoundCards(
        AppIdentity("comfyui", "alice", "ns"),
        "all",
        tuple(
            BoundCard(Grant(f"GPU-{index}", memory, f"b-{index}"), "memory-slicing")
            for index, memory in enumerate(memory_mib)
        ),
    )
    query = PlacementQuery(pod(container("a", memory=requested)), read_constraints({}, AllocationSettings()))
    here = bound_placement.query_on(query, bound, bound.cards)
    assert isinstance(here, PlacementQuery)
    outcome = place_on(ledger, here, "n0")
    if isinstance(outcome, Rejection):
        (trial,) = card_verdicts.rejected(ledger, here, "n0", outcome)
    else:
        (trial,) = card_verdicts.fitting(ledger, here, "n0")
        assert trial == card_verdicts.running(ledger, here, outcome)[0]
    return trial


@pytest.mark.parametrize("last", [400, TOTAL_MIB + 1])
def test_each_card_is_judged_by_the_memory_of_its_binding(last: int) -> None:
    """With a memory that no card has, the node does not take the pod, and no pod that ends makes that card fit."""
    trial = trial_of(None, 800, last)
    fits = last <= TOTAL_MIB
    of_others = CardReason.FITS if fits else CardReason.AllocatedCardsInsufficientRequest
    assert trial.verdicts == (of_others, of_others, CardReason.FITS if fits else CardReason.CardInsufficientMemory)
    assert trial.usable == (True, True, fits)
    assert trial.scores == pytest.approx([10 * (memory / TOTAL_MIB + 1 / 4) for memory in (100, 800, last)])
    assert trial.chosen == ((0, 1, 2) if fits else ())


def test_a_request_that_no_card_could_meet_does_not_count() -> None:
    """The bindings decide instead."""
    trial = trial_of(800, 400, requested=9 * TOTAL_MIB)
    assert (trial.verdicts, trial.usable) == ((CardReason.FITS, CardReason.FITS), (True, True))
