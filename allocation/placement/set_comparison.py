"""Compares the set of cards that a container has or would have on a node with the best set of the node.

This is the ledger's side of `allocation.topology.comparison`, for explanations only.
"""

from allocation.constraints import Constraints
from allocation.ledger.ledger import Ledger
from allocation.placement.card_verdicts import Trial
from allocation.topology import comparison
from allocation.topology.comparison import Comparison


def compare(ledger: Ledger, row: int, trial: Trial, *, count: int, constraints: Constraints) -> Comparison | None:
    """Return the comparison for a container of `count` cards that was tried on the node of `row`.

    None if the pod demands nothing of the connections, or if its cards are MIG instances, which have none.
    """
    demand, facts = constraints.topology, ledger.facts(row)
    if demand is None or any(facts.bits[position] < 0 for position in trial.chosen):
        return None
    groups: dict[int, int] = {}
    free = 0
    for position, bit in enumerate(facts.bits):
        if bit >= 0 and trial.usable[position]:
            group = facts.numa[position] if constraints.numa_bind else 0
            groups[group] = groups.get(group, 0) | 1 << bit
        if bit >= 0 and (trial.is_free(position) or position in trial.chosen):
            free |= 1 << bit
    if constraints.numa_bind and trial.chosen:
        # Which NUMA node has the first acceptable set is a matter of the card policy, not of the connections.
        own = facts.numa[trial.chosen[0]]
        groups = {own: groups.get(own, 0)}
    return comparison.compare(
        ledger.topology,
        facts.layout,
        demand,
        count,
        chosen=sorted(facts.bits[position] for position in trial.chosen),
        free=free,
        usable=groups.values(),
    )
