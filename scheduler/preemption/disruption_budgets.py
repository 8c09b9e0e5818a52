"""The PodDisruptionBudgets of the cluster, and which of them a pod has.

A pod has those of its namespace whose selector matches its labels. An empty selector matches every pod, a missing one
none (policy/v1).
"""

from collections.abc import Mapping

import msgspec

from allocation.label_selector import Expression, Selector, accepts, label_selector
from cluster.disruption_budget import PodDisruptionBudget


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget as a preemption sees it.

    Attributes:
        namespace: its namespace.
        name: its name.
        allowed: how many of its pods may be evicted now.
    """

    namespace: str
    name: str
    allowed: int


class _Entry(msgspec.Struct, frozen=True):
    budget: Budget
    selector: Selector


_Label = tuple[str, str] | None
"""A label, key and value, that every pod of a selector has; None if the selector requires no such label."""


class DisruptionBudgets:
    """The budgets; `set` and `drop` are callbacks of an Informer.

    Budgets are found by a label that their pods must have, so a pod costs as little in a namespace of many budgets.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], _Label] = {}
        self._entries: dict[str, dict[_Label, dict[str, _Entry]]] = {}

    def set(self, pdb: PodDisruptionBudget, _old: PodDisruptionBudget | None = None) -> None:
        """Add a budget, or replace it."""
        self.drop(pdb)
        selector = label_selector(pdb.spec.selector)
        if selector is None:
            return
        namespace, name = pdb.metadata.namespace, pdb.metadata.name
        label = _required_label(selector)
        self._labels[namespace, name] = label
        by_name = self._entries.setdefault(namespace, {}).setdefault(label, {})
        by_name[name] = _Entry(Budget(namespace, name, pdb.allowed), selector)

    def drop(self, pdb: PodDisruptionBudget) -> None:
        """Forget a budget."""
        namespace, name = pdb.metadata.namespace, pdb.metadata.name
        if (namespace, name) not in self._labels:
            return
        label = self._labels.pop((namespace, name))
        by_label = self._entries[namespace]
        del by_label[label][name]
        if not by_label[label]:
            del by_label[label]
        if not by_label:
            del self._entries[namespace]

    def of_pod(self, namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
        """Return the budgets of a pod by name; more than one, and the API server never evicts the pod."""
        by_label = self._entries.get(namespace)
        if by_label is None:
            return ()
        found = [
            entry.budget
            for label in (None, *labels.items())
            if label in by_label
            for entry in by_label[label].values()
            if accepts(entry.selector, labels)
        ]
        return tuple(sorted(found, key=lambda budget: budget.name))


def _required_label(selector: tuple[Expression, ...]) -> _Label:
    for each in selector:
        if each.operator == "In" and len(each.values) == 1:
            return each.key, each.values[0]
    return None
