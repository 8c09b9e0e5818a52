"""The Leases of cards, compared with the pods: every other scheduler learns from a Lease which pod has a card alone."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from chaos.pod import Pod
from chaos.violation import Kind, Violation

LABEL = "gpu.scheduling/managed"
_CARD = "gpu.scheduling/card"
_Report = Callable[[Kind, str, str], None]


class _Right(NamedTuple):
    """What a Lease says: the UID of the pod that has a card, and the UUID of the card."""

    pod: str
    card: str

    def __str__(self) -> str:
        return f"for pod {self.pod} and {self.card}"


class _Lease(NamedTuple):
    uid: str
    right: _Right


def is_of_card(content: dict[str, Any]) -> bool:
    """Whether a Lease is that of a card; others are the heartbeats of agents and the leader's own."""
    return dict(content["metadata"].get("labels", {})).get(LABEL) == "true"


class CardLeases:
    """The Leases of cards as the API server shows them. Each is created for one pod and deleted, never updated."""

    def __init__(self, *, report: _Report, patience_seconds: float) -> None:
        """Call `report` for each broken promise.

        A Lease may lack its pod, or a pod its Lease, for up to `patience_seconds`.
        """
        self._report = report
        self._patience = patience_seconds
        self._leases: dict[str, _Lease] = {}
        self._first: dict[_Right, int] = {}
        self._since: dict[Violation, float] = {}

    def set_lease(self, content: dict[str, Any]) -> None:
        """Record a Lease: no other one may be for its card, and none passes from one pod to another."""
        metadata = content["metadata"]
        right = _Right(content["spec"].get("holderIdentity", ""), metadata.get("annotations", {}).get(_CARD, ""))
        name, new = metadata["name"], _Lease(metadata["uid"], right)
        old = self._leases.get(name)
        if old is not None and old.uid == new.uid and old.right != right:
            self._report(Kind.HELD_TWICE, right.card, f"Lease {name} was {old.right} and is now {right}")
        for other, lease in self._leases.items():
            if other != name and lease.right.card == right.card:
                self._report(Kind.HELD_TWICE, right.card, f"{other} is {lease.right}, {name} is {right}")
        self._leases[name] = new
        self._first.setdefault(right, int(metadata["resourceVersion"]))

    def drop_lease(self, content: dict[str, Any]) -> None:
        """Record a deleted Lease."""
        self._leases.pop(content["metadata"]["name"], None)

    def tick(self, pods: Mapping[str, Pod], *, nodes: Collection[str], now: float) -> None:
        """Compare the Leases with all pods, by UID. Pods on nodes other than `nodes` need none: their node is gone."""
        existing = {lease.right for lease in self._leases.values()}
        self._first = {right: at for right, at in self._first.items() if right in existing or right.pod in pods}
        due = {_Right(uid, card): pod for uid, pod in pods.items() if pod.node in nodes for card in pod.leased}
        for right, pod in due.items():
            if self._first.get(right, 0) > pod.version:
                self._report(Kind.NO_LEASE, pod.name, f"it was bound before the Lease for {right.card} was created")
        differences = [
            *(
                Violation(Kind.NO_LEASE, pod.name, f"no Lease says that it has {right.card}")
                for right, pod in due.items()
                if right not in existing
            ),
            *(
                Violation(Kind.DEAD_HOLDER, name, f"pod {lease.right.pod} does not have {lease.right.card}")
                for name, lease in self._leases.items()
                if not _is_alive(lease.right, pods)
            ),
        ]
        self._since = {each: self._since.get(each, now) for each in differences}
        for each, since in self._since.items():
            if now - since > self._patience:
                self._report(*each)

    @property
    def differences(self) -> list[Violation]:
        """The differences between Leases and pods at the last tick, however long they have existed."""
        return list(self._since)


def _is_alive(right: _Right, pods: Mapping[str, Pod]) -> bool:
    """Return whether the pod has the card, or is about to be bound to it."""
    pod = pods.get(right.pod)
    return pod is not None and not pod.ended and (not pod.node or right.card in pod.leased)
