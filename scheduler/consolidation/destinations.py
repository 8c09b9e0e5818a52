"""Finds nodes for pods that leave theirs, one after the other; nothing is reserved, so the state stays as it is."""

from collections.abc import Collection, Hashable, Sequence

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


class Rankings:
    """Which nodes take the pods of each controller, the best first, as long as nothing has been moved."""

    def __init__(self, state: ClusterState, *, among: Collection[str] | None = None) -> None:
        """Rank the nodes `among`, by default all."""
        self._state = state
        self._among = among
        self._nodes: dict[Hashable, Sequence[str]] = {}

    def of(self, moved: MovablePod) -> Steps[Sequence[str]]:
        """Return the nodes that take a pod; one evaluation is enough for all pods that are alike."""
        pod, state = moved.replacement, self._state
        kind = pod.metadata.controller, state.node_filter.equivalence_class(pod).key
        if kind not in self._nodes:
            among = None if self._among is None else tuple(self._among)
            found = yield from evaluation.evaluate(state, pod, moved.requirements, moved.headroom, among=among)
            self._nodes[kind] = tuple(found.scores)
        return self._nodes[kind]


class Destinations:
    """The nodes other than one, with the pods that have been moved to them."""

    def __init__(self, state: ClusterState, source: str, rankings: Rankings) -> None:
        """Move pods of the node `source` to others, by `rankings`."""
        self._state = state
        self._source = source
        self._rankings = rankings
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
        nodes = yield from self._rankings.of(moved)
        node = next((name for name in nodes if name != self._source and name not in self._taken), None)
        if node is None:
            return None
        found = evaluation.evaluate_node(self._state, moved.requirements, node, moved.headroom)
        return Move(moved, node, found.charges) if found.scores else None  # the node may have changed meanwhile
