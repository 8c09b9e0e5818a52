"""Finds nodes for pods that leave theirs, one after the other; nothing is reserved, so the state stays as it is."""

from collections.abc import Collection, Sequence

import msgspec

from allocation.allocation import Charge
from allocation.ledger import ledger_copy
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.steps import Steps, finish
from scheduler.consolidation.movable import MovablePod
from scheduler.cycle import evaluation
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class Move(msgspec.Struct, frozen=True):
    """A pod that is moved.

    Attributes:
        moved: the pod.
        node: where its replacement fits.
        charges: what the replacement takes of each card there.
    """

    moved: MovablePod
    node: str
    charges: tuple[Charge, ...]


class Destinations:
    """The nodes other than one, with the pods that have been moved to them."""

    def __init__(self, state: ClusterState, source: str, *, among: Collection[str] | None = None) -> None:
        """Move pods of the node `source` to nodes `among`, by default all."""
        self._state = state
        self._source = source
        self._among = among
        self._taken: dict[str, LedgerCopy] = {}
        self._added: dict[str, list[Pod]] = {}

    def take(self, moved: MovablePod) -> Steps[Move | None]:
        """Choose a node for a pod: one that was chosen before, or else the best one; None if no node takes it."""
        move = self._on_taken(moved)
        if move is None:
            move = yield from self._on_others(moved)
        if move is not None:
            ledger = self._taken.get(move.node) or ledger_copy.of_node(self._state.ledger, move.node)
            ledger.record(moved.pod.uid, move.node, move.charges)
            self._taken[move.node] = ledger
            self._added.setdefault(move.node, []).append(moved.replacement)
        return move

    def _on_taken(self, moved: MovablePod) -> Move | None:
        rejected_nodes = self._state.rejected_nodes.of(moved.requirements)
        for node, ledger in self._taken.items():
            filtered = finish(self._state.node_filter.filter(moved.replacement, (node,), added=self._added))
            if not filtered.fitting:
                continue
            found = evaluation.evaluate_on(
                ledger, moved.requirements, node, rejected_nodes=rejected_nodes, headroom=moved.headroom
            )
            if found.scores:
                return Move(moved, node, found.charges)
        return None

    def _on_others(self, moved: MovablePod) -> Steps[Move | None]:
        found = yield from evaluation.evaluate(
            self._state, moved.replacement, moved.requirements, moved.headroom, among=self._others(moved)
        )
        node = next(iter(found.scores), None)
        return Move(moved, node, found.charges) if node is not None else None

    def _others(self, moved: MovablePod) -> Sequence[str]:
        candidates = self._state.rejected_nodes.candidates(moved.requirements) if self._among is None else self._among
        names = self._state.node_cache.names if candidates is None else candidates
        return [name for name in names if name != self._source and name not in self._taken]
