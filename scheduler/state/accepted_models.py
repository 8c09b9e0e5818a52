"""Which models of cards a pod accepts: by its annotations, and by the nodes that it may run on.

A pod restricts its nodes by nodeSelector and required node affinity; the models on these nodes are those it accepts.
"""

from collections.abc import Hashable
from typing import Final

from allocation.constraints import read_constraints
from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from allocation.settings import AllocationSettings
from scheduler.filters.digest import digest
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.pod_spec.spec import PodSpec
from scheduler.selectors import node_matcher

_RESTRICTIONS: Final = 64
"""Restrictions whose models are kept; users can write any number."""


class AcceptedModels:
    """The models that pods accept, as the nodes are now."""

    def __init__(self, ledger: Ledger, node_cache: NodeCache, settings: AllocationSettings) -> None:
        self._ledger = ledger
        self._node_cache = node_cache
        self._settings = settings
        self._of_nodes: dict[Hashable, frozenset[str]] = {}
        """The models on the nodes that match, by nodeSelector and affinity, until a node or its cards change."""

    def of(self, pod: Pod) -> frozenset[str] | None:
        """Return the models that a pod accepts; None if every model will do."""
        spec, kinds = pod.spec, self._ledger.kind_names
        try:
            constraints = read_constraints(pod.metadata.annotations, self._settings)
        except AllocationError:
            return None  # written after it was placed
        affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        if not constraints.chooses_types and not spec.node_selector and affinity is None:
            return None
        accepted = frozenset(model for model, mode in kinds if constraints.accepts_type(model, mode))
        if spec.node_selector or affinity is not None:
            accepted &= self._on_nodes(digest((spec.node_selector, affinity)), spec)
        return None if accepted == {model for model, _ in kinds} else accepted

    def forget(self) -> None:
        """Read the nodes again: one of them, or its cards, changed."""
        self._of_nodes.clear()

    def _on_nodes(self, key: Hashable, spec: PodSpec) -> frozenset[str]:
        """Return the models on the nodes that a pod may run on; `key` is equal for equal restrictions."""
        found = self._of_nodes.get(key)
        if found is None:
            if len(self._of_nodes) >= _RESTRICTIONS:
                self._of_nodes.clear()
            ledger, matches, kinds = self._ledger, node_matcher(spec), set[tuple[int, ...]]()
            for name, node in self._node_cache.nodes.items():
                row = ledger.row(name)
                of_node = tuple(ledger.facts(row).kinds) if row is not None else ()
                if of_node not in kinds and matches(node):  # nearly all nodes have the same cards as many others
                    kinds.add(of_node)
            found = frozenset(ledger.kind_names[kind][0] for each in kinds for kind in each)
            self._of_nodes[key] = found
        return found
