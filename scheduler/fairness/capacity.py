"""What there is to share: the usable cards, and the CPU and memory of their nodes."""

from collections.abc import Container

from allocation.fairness.shares import NOTHING, Amounts, added, subtracted
from allocation.ledger.card_table import CORES, MEMORY, SLOTS, TFLOPS
from allocation.ledger.ledger import Ledger
from allocation.steps import Steps
from scheduler.filters import resources
from scheduler.filters.node_cache import NodeCache


class Capacity:
    """Sums over the nodes with cards that take new pods; only nodes that changed are read again.

    A card in MIG mode counts as its instances. Unhealthy and cordoned cards do not count, nor does what a cordoned
    node has, or one that another allocator shares out.
    """

    def __init__(self, ledger: Ledger, node_cache: NodeCache, *, of_others: Container[str]) -> None:
        """Sum up what `ledger` and `node_cache` have, without the nodes `of_others`."""
        self._ledger = ledger
        self._node_cache = node_cache
        self._of_others = of_others
        self._nodes: dict[str, Amounts] = {}
        self._changed: set[str] = set()
        self._total = NOTHING

    def touch(self, node: str) -> None:
        """Note that a node is to be read again, because it or its cards changed."""
        self._changed.add(node)

    def total(self) -> Amounts:
        """Return the sums."""
        while self._changed:
            node = self._changed.pop()
            old, new = self._nodes.pop(node, NOTHING), self._of_node(node)
            if new != NOTHING:
                self._nodes[node] = new
            self._total = subtracted(added(self._total, new), old)
        return self._total

    def cards(self) -> int:
        """Return the number of cards to share; of one in MIG mode, each instance."""
        self.total()
        rows = (self._ledger.row(name) for name in self._nodes)
        return sum(sum(self._ledger.facts(row).usable) for row in rows if row is not None)

    def differences(self) -> Steps[dict[str, str]]:
        """Return a text for each node of which something else is counted than it has, and one for a wrong total."""
        sums = tuple(map(sum, zip(NOTHING, *self._nodes.values(), strict=True)))
        found = {"total": f"the nodes have {sums}, their total is {self._total}"} if sums != self._total else {}
        for node in {*self._nodes, *self._ledger.nodes}:
            counted, amounts = self._nodes.get(node, NOTHING), self._of_node(node)
            if counted != amounts and node not in self._changed:
                found[node] = f"node {node} has {amounts}, {counted} of it are counted"
            yield
        return found

    def _of_node(self, name: str) -> Amounts:
        row, node = self._ledger.row(name), self._node_cache.nodes.get(name)
        if row is None or node is None or node.spec.unschedulable or name in self._of_others:
            return NOTHING
        facts, allocatable = self._ledger.facts(row), self._node_cache.allocatable.get(name, {})
        usable = [place for place, is_usable in enumerate(facts.usable) if is_usable]
        memory, cores, slots, tflops = (
            sum(facts.total[each][place] for place in usable) for each in (MEMORY, CORES, SLOTS, TFLOPS)
        )
        return memory, cores, slots, tflops, allocatable.get(resources.CPU, 0), allocatable.get(resources.MEMORY, 0)
