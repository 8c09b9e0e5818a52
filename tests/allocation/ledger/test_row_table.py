"""What is kept for each row follows the changes of the ledger, in steps if they are many."""

import numpy as np
import pytest

from allocation.allocation import Charge
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.row_table import RowTable
from allocation.steps import finish

NODES = 200


def fleet() -> tuple[Ledger, RowTable, list[int]]:
    """Return a ledger, a table of the memory in use on each node, and the rows that were evaluated."""
    ledger, evaluated = Ledger(), list[int]()
    for number in range(NODES):
        ledger.set_node(NodeInventory(f"n{number}", (Card(f"GPU-{number}", 0, 1000, slots=4),)))

    def used(row: int) -> int:
        evaluated.append(row)
        return ledger.used_lists(row)[0][0]

    return ledger, RowTable(ledger, used, np.int64), evaluated


@pytest.mark.parametrize(("changed", "in_steps"), [(0, False), (20, False), (150, True)])
def test_many_changes_are_followed_in_steps(changed: int, *, in_steps: bool) -> None:
    """Each changed row is evaluated once, however it is asked for."""
    ledger, table, evaluated = fleet()
    finish(table.prepare())
    evaluated.clear()
    for number in range(changed):
        for times in range(2):
            ledger.assume(f"pod-{number}-{times}", f"n{number}", (Charge(f"GPU-{number}", 100, 0, 1),))
    steps = sum(1 for _ in table.prepare())
    assert (steps > 1) is in_steps
    assert table.rows()[ledger.rows([f"n{number}" for number in range(NODES)])].tolist() == [
        200 if number < changed else 0 for number in range(NODES)
    ]
    assert sorted(evaluated) == sorted({ledger.rows([f"n{number}"]).item() for number in range(changed)})


def test_what_changes_between_two_steps_counts() -> None:
    """Also on a node that was evaluated before, and where rows go to other nodes."""
    ledger, table, _ = fleet()
    finish(table.prepare())
    for number in range(150):
        ledger.assume(f"pod-{number}", f"n{number}", (Charge(f"GPU-{number}", 100, 0, 1),))
    steps = table.prepare()
    for _ in range(2):
        next(steps)
    for number in range(150):
        ledger.release(f"pod-{number}")
    finish(steps)
    assert not table.rows()[ledger.rows(ledger.nodes)].any()
    for number in range(150):
        ledger.assume(f"pod-{number}", f"n{number}", (Charge(f"GPU-{number}", 100, 0, 1),))
    steps = table.prepare()
    next(steps)
    ledger.drop_node("n0")
    ledger.set_node(NodeInventory("new", (Card("GPU-new", 0, 1000, slots=4),)))
    finish(steps)
    assert table.rows()[ledger.rows(["n1", "new"])].tolist() == [100, 0]
