"""The live pods of each application, which have the cards that are bound to it."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from allocation.bindings.binding import AppIdentity
from allocation.ledger.ledger import Ledger
from scheduler.objects import Pod


class AppPods:
    """The live pods by application; those with a card are its consumers."""

    def __init__(self, ledger: Ledger) -> None:
        """Read from `ledger` which cards a pod has, the reserved ones included."""
        self._ledger = ledger
        self._pods: defaultdict[AppIdentity, dict[str, str]] = defaultdict(dict)
        """By identity and UID: namespace/name."""
        self._identities: dict[str, AppIdentity] = {}
        self._by_app: defaultdict[str, set[AppIdentity]] = defaultdict(set)

    def set(self, pod: Pod) -> Collection[str]:
        """Set the state of a live pod; return the UIDs of pods whose application it has left."""
        identity = AppIdentity.of_labels(pod.metadata.labels, pod.metadata.namespace)
        if self._identities.get(pod.uid) == identity:
            return ()
        left = self.drop(pod.uid)
        if identity is not None:
            self._identities[pod.uid] = identity
            self._pods[identity][pod.uid] = str(pod)
            self._by_app[identity.app].add(identity)
        return left

    def drop(self, uid: str) -> Collection[str]:
        """Forget a pod that is finished or deleted; return the UIDs of the other pods of its application."""
        peers = self.peers(uid)
        identity = self._identities.pop(uid, None)
        if identity is None:
            return ()
        del self._pods[identity][uid]
        if not self._pods[identity]:
            del self._pods[identity]
            self._by_app[identity.app].discard(identity)
            if not self._by_app[identity.app]:
                del self._by_app[identity.app]
        return peers

    def peers(self, uid: str) -> Collection[str]:
        """Return the UIDs of the other pods of a pod's application."""
        identity = self._identities.get(uid)
        return [each for each in self._pods[identity] if each != uid] if identity is not None else ()

    def of_app(self, app: str) -> Collection[str]:
        """Return the UIDs of the pods of all applications of this name."""
        return [uid for identity in self._by_app.get(app, ()) for uid in self._pods[identity]]

    def consumers(self, identity: AppIdentity, *, other_than: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return by UUID of the card which other pods of an application have it, as namespace/name.

        A MIG instance counts as its card. `other_than` are the UIDs of pods that do not count.
        """
        found: defaultdict[str, list[str]] = defaultdict(list)
        for uid, name in self._pods.get(identity, {}).items():
            if uid not in other_than:
                for card in self._cards(uid):
                    found[card].append(name)
        return {card: tuple(sorted(pods)) for card, pods in found.items()}

    def _cards(self, uid: str) -> Iterator[str]:
        held = self._ledger.reservation(uid)
        yield from {charge.parent or charge.uuid for charge in held.charges} if held is not None else ()
