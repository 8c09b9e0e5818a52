"""Which pod is evaluated next after a change: namespaces take turns, each with its pod that waits longest."""

from collections import OrderedDict
from collections.abc import Iterator


class Turns:
    """Pods by namespace, in the order in which they are looked at.

    However many pods of a namespace wait, those of another one have their turn after one of them.

    Attributes:
        changes: the number of changes so far. A pod is due if something changed since it was last looked at.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._namespaces: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()
        """For each UID, the number of changes before it was last looked at; the pods that are due come first."""

    def change(self) -> None:
        """Note a change, after which every pod is due."""
        self.changes += 1

    def set(self, namespace: str, uid: str, *, since: int) -> None:
        """Note that a pod was looked at after `since` changes; if it is due, it is the first of its namespace."""
        pods = self._namespaces.setdefault(namespace, OrderedDict())
        pods[uid] = since
        pods.move_to_end(uid, last=since == self.changes)

    def drop(self, namespace: str, uid: str) -> None:
        """Forget a pod."""
        pods = self._namespaces.get(namespace, OrderedDict())
        pods.pop(uid, None)
        if not pods:
            self._namespaces.pop(namespace, None)

    def due(self) -> Iterator[str]:
        """Iterate over the pods that are due now, each once; a pod counts as looked at as soon as it is returned."""
        changes, was_due = self.changes, True
        while was_due:
            was_due = False
            for namespace in tuple(self._namespaces):
                uid, since = next(iter(self._namespaces.get(namespace, {}).items()), ("", changes))
                if since < changes:
                    was_due = True
                    self.set(namespace, uid, since=changes)
                    self._namespaces.move_to_end(namespace)
                    yield uid
