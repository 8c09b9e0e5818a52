"""Finds nodes by the value of a label, without looking at every node."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from scheduler.objects import Node


class NodeLabels:
    """The nodes by the values of those labels that were asked for."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Index `nodes`; `replace` must be called with each change."""
        self._nodes = nodes
        self._keys: dict[str, defaultdict[str, set[str]]] = {}

    def replace(self, old: Node | None, new: Node | None) -> None:
        """Index the new state of a node instead of its old one; None where it does not exist."""
        for key, names in self._keys.items():
            if old is not None and key in old.metadata.labels:
                value = old.metadata.labels[key]
                names[value].discard(old.metadata.name)
                if not names[value]:
                    del names[value]
            if new is not None and key in new.metadata.labels:
                names[new.metadata.labels[key]].add(new.metadata.name)

    def nodes_with(self, labels: Iterable[tuple[str, str]]) -> set[str]:
        """Return the nodes that have one of `labels`, which are pairs of key and value."""
        found: set[str] = set()
        for key, value in labels:
            found |= self._names(key).get(value, set())
        return found

    def _names(self, key: str) -> Mapping[str, set[str]]:
        names = self._keys.get(key)
        if names is None:
            names = self._keys[key] = defaultdict(set)
            for name, node in self._nodes.items():
                if key in node.metadata.labels:
                    names[node.metadata.labels[key]].add(name)
        return names
