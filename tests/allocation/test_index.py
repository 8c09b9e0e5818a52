"""Placement by difference decides what placement from scratch decides, whatever happened before."""

import random

from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.changes import Changes
from allocation.constraints import read_constraints
from allocation.index import Index
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.placement import Placement, place
from allocation.quota import UNLIMITED, Room
from allocation.request import Kind
from allocation.settings import AllocationSettings
from tests.allocation.builders import container, pod
from tests.allocation.mig_cards import divided, instance

REQUESTS = (
    pod(container(memory=300)),
    pod(container(memory=300, cores=200)),
    pod(container(percent=50)),
    pod(container(memory=1, cores=1000)),
    pod(container(count=2, memory=200)),
    pod(container("a", memory=500), container("b", memory=500)),
    pod(container("i", Kind.INIT, memory=900), container("s", Kind.SIDECAR, memory=100), container("m", percent=30)),
)
DEMANDS = (
    {},
    {names.NODE_POLICY: "spread"},
    {names.CARD_POLICY: "binpack"},
    {names.CARD_POLICY: "mutex,numa"},
    {names.CARD_POLICY: "topology-aware"},
    {names.NUMA_BIND: "true"},
    {names.USE_TYPES: "A100"},
    {names.AVOID_UUIDS: "GPU-n1-0,GPU-n2-1"},
    {names.USE_UUIDS: "GPU-n0-0,GPU-n3-0"},
    {names.MODE: "mig"},
)
ROOMS = (UNLIMITED, UNLIMITED, Room(memory_mib=400), Room(cards=1, cores=1000))


class Some:
    """Eligibility that a test decides."""

    def __init__(self, ledger: Ledger, refused: set[str]) -> None:
        self._ledger = ledger
        self._refused = refused

    def rows(self) -> object:
        """Answer it for all rows."""
        answer = self._ledger.fullness >= 0
        for node in self._refused:
            row = self._ledger.row(node)
            if row is not None:
                answer[row] = False
        return answer

    def row(self, row: int) -> bool:
        """Answer it for one."""
        return self._ledger.node(row) not in self._refused


def inventory(node: str, chance: random.Random) -> NodeInventory:
    """Answer some cards, sometimes one that is divided."""
    cards: list[Card] = []
    for index in range(chance.randint(1, 4)):
        if chance.random() < 0.15:
            cards.append(divided(index, node=node))
            starts = chance.sample(range(7), chance.randint(0, 3))
            cards.extend(instance(index, "1g.5gb", start, node=node) for start in starts)
            continue
        cards.append(
            Card(
                f"GPU-{node}-{index}",
                index,
                chance.choice((1000, 1000, 2000)),
                cores=chance.choice((1000, 1000, 2000, 0)),
                slots=chance.choice((2, 4)),
                model=chance.choice(("NVIDIA A100", "NVIDIA H100")),
                numa=chance.randint(0, 1),
                healthy=chance.random() > 0.1,
            )
        )
    scores = {one.uuid: {other.uuid: chance.randint(0, 3) for other in cards if other is not one} for one in cards}
    return NodeInventory(node, tuple(cards), scores)


class World:
    """A ledger with an index over it, and things that happen to both."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.ledger = Ledger(rows=2, cards=2)
        self.index = Index(self.ledger)
        self.refused: set[str] = set()
        self.pods: list[str] = []

    def step(self) -> None:
        """Let one thing happen."""
        chance, ledger = self.chance, self.ledger
        node = f"n{chance.randint(0, 5)}"
        match chance.choices(("set", "drop", "cordon", "refuse", "release", "place"), (3, 1, 1, 2, 4, 12))[0]:
            case "set":
                ledger.set_node(inventory(node, chance))
            case "drop":
                ledger.drop_node(node)
            case "cordon":
                ledger.set_cordon(node, frozenset(chance.sample([f"GPU-{node}-{i}" for i in range(4)], 1)))
            case "refuse":
                self.refused ^= {node}
                row = ledger.row(node)
                if row is not None:
                    ledger.changes.add(row)
            case "release":
                if self.pods:
                    ledger.release(self.pods.pop(chance.randrange(len(self.pods))))
            case _:
                self.place()

    def place(self) -> None:
        """Decide in both ways, compare, and reserve."""
        request, room = self.chance.choice(REQUESTS), self.chance.choice(ROOMS)
        constraints = read_constraints(self.chance.choice(DEMANDS), AllocationSettings())
        nodes = [node for node in self.ledger.nodes if node not in self.refused]
        plain = place(self.ledger, request, nodes, constraints=constraints, room=room)
        shape = self.index.shape(request, constraints, eligible=Some(self.ledger, self.refused), key="some")
        chosen = shape.place(request, room=room)
        if not isinstance(plain, Placement):
            assert chosen is None
            return
        assert chosen is not None
        assert (chosen.allocation, chosen.charges) == (plain.allocation, plain.charges)
        assert chosen.score == plain.scores[plain.allocation.node]
        uid = f"pod-{len(self.pods)}-{self.chance.random()}"
        self.ledger.assume(uid, plain.allocation.node, plain.charges)
        self.pods.append(uid)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_by_difference_is_from_scratch(seed: int, steps: int) -> None:
    """The same node, cards, charges and score, to the last bit, at each step of any history."""
    world = World(seed)
    for _ in range(steps):
        world.step()


def test_a_request_that_repeats_looks_at_changed_nodes_only() -> None:
    """It is what the index is for: the columns of the others are not read again."""
    ledger = Ledger()
    for number in range(3):
        ledger.set_node(NodeInventory(f"n{number}", (Card(f"GPU-{number}", 0, 1000),)))
    index, request = Index(ledger), pod(container(memory=300))
    constraints = read_constraints({}, AllocationSettings())
    first = index.shape(request, constraints).place(request)
    assert first is not None
    ledger.used[:, ledger.row("n1")] = ledger.total[:, ledger.row("n1")]  # behind the ledger's back
    ledger.assume("a", first.allocation.node, first.charges)
    assert index.shape(request, constraints).count() == 3
    ledger.changes.add(ledger.row("n1") or 0)
    ledger._taken.clear()
    assert index.shape(request, constraints).count() == 2


def test_who_has_not_looked_for_long_looks_at_everything() -> None:
    """The log is bounded; a mark that it has left behind says so."""
    changes = Changes()
    early = changes.mark
    changes.add(1)
    changes.add(2, taken=True)
    assert changes.since(early) == {1, ~2}
    assert changes.since(changes.mark) == set()
    for row in range(10_000):
        changes.add(row)
    assert changes.since(early) is None
    late = changes.mark
    changes.start_anew()
    assert changes.since(late) is None
