"""What is left of each node, kept while nodes, pods and the mix of requests change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement.host import Mix, host_of, set_host, shape_of
from allocation.placement.host_table import HostTable
from allocation.steps import finish

if TYPE_CHECKING:
    from allocation.placement.host import Hosts

GIB = 1 << 30
MIXES = (
    Mix(8_000.0, 64.0 * GIB),
    Mix(9_600.0, 64.0 * GIB, {"A": 0.5}),
    Mix(8_000.0, 32.0 * GIB, {"A": 0.25, "B": 1.0}),
)


class Fleet:
    """A ledger, and what is free of its nodes beside cards."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.ledger = Ledger()
        self.free: dict[str, tuple[int, int]] = {}
        self.reads = 0
        self.table = HostTable(self.ledger, self._read)

    def _read(self, row: int) -> tuple[int, int]:
        self.reads += 1
        return self.free[self.ledger.node(row)]

    def set_node(self, name: str, *, cards: int = 2, model: str = "A") -> None:
        """Add a node, or replace its cards."""
        self.free.setdefault(name, (64_000, 512 * GIB))
        every = tuple(Card(f"{name}-{index}", index, 1000, model=model) for index in range(cards))
        self.ledger.set_node(NodeInventory(name, every))

    def set_free(self, *names: str, cpu: int) -> None:
        """Change what is free of some nodes beside cards."""
        for name in names:
            row = self.ledger.row(name)
            assert row is not None
            self.free[name] = (cpu, cpu * GIB)
            self.ledger.changes.add(row)

    def expected(self, mix: Mix) -> Hosts:
        """Return what is left of each node, read again."""
        hosts = np.zeros(shape_of(self.ledger))
        for row in self.ledger.order().tolist():
            cpu, memory = self.free[self.ledger.node(row)]
            set_host(hosts, row, host_of(self.ledger, row, mix, cpu=cpu, memory=memory))
        return hosts

    def check(self, mix: Mix) -> None:
        """Compare columns and single nodes with what is read again."""
        rows, expected, hosts = self.ledger.order(), self.expected(mix), self.table.rows(mix)
        assert np.array_equal(hosts[:, rows], expected[:, rows])
        for row in rows.tolist():
            cpu, memory = self.free[self.ledger.node(row)]
            assert self.table.host(row, mix) == host_of(self.ledger, row, mix, cpu=cpu, memory=memory)


@given(st.data())
def test_what_is_kept_is_what_would_be_read(data: st.DataObject) -> None:
    """Whatever changes, also while many rows are read in steps: cards, pods, CPU, the mix and the number of nodes."""
    fleet = Fleet()
    for number in range(data.draw(st.integers(1, 70))):
        fleet.set_node(f"n{number}")
    running = None
    for number in range(data.draw(st.integers(1, 12))):
        mix = data.draw(st.sampled_from(MIXES))
        what = data.draw(st.sampled_from(("node", "pod", "cpu", "many", "gone", "step", "check")))
        if what == "step":
            running = fleet.table.prepare(mix) if running is None else running
            running = None if next(running, "done") == "done" else running
        elif what == "check":
            fleet.check(mix)
        else:
            change(fleet, what, number, data)
    fleet.check(data.draw(st.sampled_from(MIXES)))


def change(fleet: Fleet, what: str, number: int, data: st.DataObject) -> None:
    """Change a node, a pod, what is free on one or on all nodes, or remove a node."""
    name, amount = f"n{data.draw(st.integers(0, 80))}", data.draw(st.integers(1, 1000))
    if what == "node":
        fleet.set_node(name, cards=data.draw(st.integers(1, 10)), model=data.draw(st.sampled_from("AB")))
    elif what == "many":
        fleet.set_free(*fleet.ledger.nodes, cpu=amount)
    elif name not in fleet.ledger.nodes:
        return
    elif what == "pod":
        fleet.ledger.record(f"u{number}", name, (Charge(f"{name}-0", amount, amount, 1),))
    elif what == "cpu":
        fleet.set_free(name, cpu=amount)
    elif len(fleet.ledger.nodes) > 1:
        fleet.ledger.drop_node(name)


def test_only_nodes_that_changed_are_read_again() -> None:
    """All of them in steps, once; of 40 that change together as well, and one at a time when asked."""
    fleet = Fleet()
    for number in range(100):
        fleet.set_node(f"n{number}")
    assert len([*fleet.table.prepare(MIXES[0])]) == 3
    assert fleet.reads == 100
    fleet.ledger.changes.add(5)
    fleet.table.rows(MIXES[0])
    assert fleet.reads == 101
    fleet.table.rows(MIXES[1])
    assert fleet.reads == 101
    for row in range(40):
        fleet.ledger.changes.add(row)
    assert len([*fleet.table.prepare(MIXES[1])]) == 1
    finish(fleet.table.prepare(MIXES[1]))
    assert fleet.reads == 141
    fleet.table.rows(MIXES[1])
    assert fleet.reads == 141


def test_a_node_may_get_more_cards_than_any_before() -> None:
    """Then there are more columns."""
    fleet = Fleet()
    fleet.set_node("n0")
    fleet.check(MIXES[0])
    fleet.set_node("n0", cards=12)
    fleet.check(MIXES[0])


def test_a_node_may_get_more_cards_than_any_before_while_rows_are_read() -> None:
    """The step ends; all rows are read again when they are needed."""
    fleet = Fleet()
    for number in range(40):
        fleet.set_node(f"n{number}")
    running = fleet.table.prepare(MIXES[0])
    next(running)
    fleet.set_node("n9", cards=12)  # the last row: they are in the order of names
    assert [*running] == []
    fleet.check(MIXES[0])
