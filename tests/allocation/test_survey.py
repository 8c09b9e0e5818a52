"""Nodes judged all at once say what each says by itself."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.constraints import Constraints, read_constraints
from allocation.ledger import Ledger
from allocation.placement import Placement, place, worths
from allocation.quota import Room
from allocation.reasons import NODE_UNREGISTERED
from allocation.request import PodRequest
from allocation.settings import AllocationSettings
from allocation.standing import UNFIT
from allocation.survey import survey
from tests.allocation.builders import container, pod
from tests.allocation.test_index import DEMANDS, REQUESTS, ROOMS, World

DEFAULTS = AllocationSettings()


def drawn(seed: int) -> tuple[random.Random, Ledger, PodRequest, Constraints, Room]:
    """Answer a ledger with a history, a pod's request, what else it wants, and the room that its namespace has."""
    world = World(seed)
    for _ in range(30):
        world.step()
    chance = random.Random(seed)  # noqa: S311 -- a test
    request, room = chance.choice(REQUESTS), chance.choice(ROOMS)
    return chance, world.ledger, request, read_constraints(chance.choice(DEMANDS), DEFAULTS), room


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_all_together_is_one_by_one(seed: int) -> None:
    """The same scores, to the last bit, and the same rejections, whichever nodes are asked about together."""
    chance, ledger, request, constraints, room = drawn(seed)
    nodes = [*ledger.nodes, "elsewhere"]
    alone = [survey(ledger, request, [node], constraints=constraints, room=room) for node in nodes]
    asked = chance.sample(nodes, chance.randint(0, len(nodes)))
    for some in (nodes, asked):
        together = survey(ledger, request, some, constraints=constraints, room=room)
        found = [alone[nodes.index(node)] for node in some]
        assert together.scores == {name: score for each in found for name, score in each.scores.items()}
        assert together.rejections == {name: why for each in found for name, why in each.rejections.items()}
        sign = -1 if constraints.node_policy == "binpack" else 1
        assert list(together.scores.items()) == sorted(together.scores.items(), key=lambda s: (sign * s[1], s[0]))


@given(st.integers(0, 2**32))
def test_who_fits_is_who_could_be_chosen(seed: int) -> None:
    """The nodes and rejections of a filter are those of a choice, though it tries no cards where it need not."""
    chance, ledger, request, constraints, room = drawn(seed)
    nodes = [*ledger.nodes, "elsewhere"]
    asked = chance.sample(nodes, chance.randint(0, len(nodes)))
    chosen = place(ledger, request, asked, constraints=constraints, room=room)
    found, rejections = worths(ledger, request, asked, constraints=constraints, room=room)
    fits = [name for name, worth in zip(asked, found.tolist(), strict=True) if worth != UNFIT]
    assert fits == [name for name in asked if isinstance(chosen, Placement) and name in chosen.scores]
    assert rejections == chosen.rejections
    sign = 1 if constraints.node_policy == "binpack" else -1
    scores = {name: sign * score for name, score in chosen.scores.items()} if isinstance(chosen, Placement) else {}
    assert found.tolist() == [scores.get(name, UNFIT) for name in asked]


def test_nobody_knows_an_unknown_node() -> None:
    """In an empty ledger, too."""
    constraints = read_constraints({}, DEFAULTS)
    found = survey(Ledger(), pod(container(memory=1)), ["ghost"], constraints=constraints, room=ROOMS[0])
    assert found.scores == {}
    assert str(found.rejections["ghost"]) == NODE_UNREGISTERED
