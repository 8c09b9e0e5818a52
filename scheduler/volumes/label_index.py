"""Finds objects by the labels that a node must have for them, without looking at each object for each node."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from allocation.label_selector import Expression
from scheduler.pod_spec.constraints import NodeSelector

Labels = frozenset[tuple[str, str]]
"""Labels as pairs of key and value. A node needs one of them at least, and maybe more than that."""
Bucket = tuple[str, str] | None
"""A label of a node, or None for what needs no certain label."""

_MOST: Final = 64
"""With more labels than this an object is found from every node."""

T = TypeVar("T")


def of_selector(selector: NodeSelector) -> Labels | None:
    """Return labels of which every node that `selector` matches has one, or None if it names too many, or none."""
    found: set[tuple[str, str]] = set()
    for term in selector.node_selector_terms:
        labels = of_expressions(term.match_expressions)
        if labels is None:
            return None
        found |= labels
    return frozenset(found) if len(found) <= _MOST else None


def of_expressions(expressions: Iterable[Expression]) -> Labels | None:
    """Return labels of which every node has one for which all `expressions` hold; None without such labels."""
    choices = [each for each in expressions if each.operator == "In" and len(each.values) <= _MOST]
    if not choices:
        return None
    narrowest = min(choices, key=lambda each: len(each.values))
    return frozenset((narrowest.key, value) for value in narrowest.values)


class LabelIndex(Generic[T]):
    """Objects by name, in a bucket for each label of a node that they need."""

    def __init__(self) -> None:
        self._buckets: dict[Bucket, dict[str, T]] = {}
        self._keys: defaultdict[str, int] = defaultdict(int)

    def add(self, name: str, item: T, labels: Labels | None) -> None:
        """Add an object that needs one of `labels`, or no certain label if they are None."""
        for bucket in labels if labels is not None else (None,):
            items = self._buckets.get(bucket)
            if items is None:
                items = self._buckets[bucket] = {}
                if bucket is not None:
                    self._keys[bucket[0]] += 1
            items[name] = item

    def remove(self, name: str, labels: Labels | None) -> None:
        """Remove an object that was added with `labels`."""
        for bucket in labels if labels is not None else (None,):
            items = self._buckets.get(bucket, {})
            if items.pop(name, None) is not None and not items:
                del self._buckets[bucket]
                if bucket is not None:
                    self._keys[bucket[0]] -= 1
                    if not self._keys[bucket[0]]:
                        del self._keys[bucket[0]]

    def buckets(self, labels: Mapping[str, str]) -> Iterator[Bucket]:
        """Iterate over the buckets whose objects a node with these labels may use."""
        if None in self._buckets:
            yield None
        for key in self._keys:
            if key in labels and (bucket := (key, labels[key])) in self._buckets:
                yield bucket

    def items(self, bucket: Bucket) -> Iterable[T]:
        """Return the objects in one bucket."""
        return self._buckets.get(bucket, {}).values()
