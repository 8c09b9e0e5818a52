"""The PodDisruptionBudgets of the cluster, and which of them a pod has.

A pod has those of its namespace whose selector matches its labels. An empty selector matches every pod, a missing one
none (policy/v1).
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from allocation.label_selector import Expression, Selector, accepts, label_selector
from cluster.disruption_budget import PodDisruptionBudget


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget as a preemption sees it.

    Attributes:
        namespace: its namespace.
        name: its name.
        allowed: how many of its pods may be evicted now.
        is_rigid: whether it never permits an Eviction, in whatever state its pods are.
    """

    namespace: str
    name: str
    allowed: int
    is_rigid: bool = False


class _Entry(msgspec.Struct, frozen=True):
    budget: Budget
    selector: Selector


_Label = tuple[str, str] | None
"""A label, key and value, that every pod of a selector has; None if the selector requires no such label."""


_COMPARED: Final = 64
"""Budgets that are compared with one pod."""
_REMEMBERED: Final = 1024
"""Sets of labels in one namespace whose budgets are remembered."""


class DisruptionBudgets:
    """The budgets; `set` and `drop` are callbacks of an Informer.

    Budgets are found by a label that their pods must have, so a pod costs as little in a namespace of many budgets, and
    what was found is remembered until a budget of the namespace changes. Tenants write budgets, so only a
    limited number is compared with a pod, and never one that is too large: beyond that a pod counts as guarded.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], _Label] = {}
        self._entries: dict[str, dict[_Label, dict[str, _Entry]]] = {}
        self._oversized: dict[str, set[str]] = {}
        self._answers: dict[str, dict[frozenset[tuple[str, str]], tuple[Budget, ...]]] = {}

    def set(self, pdb: PodDisruptionBudget, _old: PodDisruptionBudget | None = None) -> None:
        """Add a budget, or replace it."""
        self.drop(pdb)
        namespace, name = pdb.metadata.namespace, pdb.metadata.name
        if pdb.is_oversized:
            self._oversized.setdefault(namespace, set()).add(name)
            return
        selector = label_selector(pdb.spec.selector)
        if selector is None:
            return
        label = _required_label(selector)
        self._labels[namespace, name] = label
        by_name = self._entries.setdefault(namespace, {}).setdefault(label, {})
        by_name[name] = _Entry(Budget(namespace, name, pdb.allowed, pdb.is_rigid), selector)

    def drop(self, pdb: PodDisruptionBudget) -> None:
        """Forget a budget."""
        namespace, name = pdb.metadata.namespace, pdb.metadata.name
        self._answers.pop(namespace, None)
        if name in self._oversized.get(namespace, ()):
            self._oversized[namespace].remove(name)
            if not self._oversized[namespace]:
                del self._oversized[namespace]
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
        """Return the budgets of a pod by name; more than one, and the API server never evicts the pod.

        Where there are too many to compare, or one that is too large, it is a rigid one.
        """
        if namespace not in self._entries and namespace not in self._oversized:
            return ()
        answers, key = self._answers.setdefault(namespace, {}), frozenset(labels.items())
        found = answers.get(key)
        if found is None:
            if len(answers) >= _REMEMBERED:
                answers.clear()
            found = answers[key] = self._find(namespace, labels)
        return found

    def _find(self, namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
        for name in self._oversized.get(namespace, ()):
            return (Budget(namespace, name, 0, is_rigid=True),)
        found = []
        for place, entry in enumerate(self._candidates(namespace, labels)):
            if place == _COMPARED:
                return (Budget(namespace, entry.budget.name, 0, is_rigid=True),)
            if accepts(entry.selector, labels):
                found.append(entry.budget)
        return tuple(sorted(found, key=lambda budget: budget.name))

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[_Entry]:
        """Iterate over the budgets that may be a pod's."""
        by_label = self._entries.get(namespace, {})
        for label in (None, *labels.items()):
            yield from by_label.get(label, {}).values()


def _required_label(selector: tuple[Expression, ...]) -> _Label:
    for each in selector:
        if each.operator == "In" and len(each.values) == 1:
            return each.key, each.values[0]
    return None
