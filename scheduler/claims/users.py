"""The live pods that name a GpuClaim, and how far each of them got."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from cluster.gpu_claim import Phase

Reason = Literal[
    "NoPod",
    "Waiting",
    "Reserved",
    "LeasesHeld",
    "Bound",
    "LeaseConflict",
    "BindingRefused",
    "DeviceMissing",
    "GangTimeout",
]

ORDER: Final[tuple[Phase, ...]] = ("Failed", "Pending", "Reserved", "Bound")
"""From the least advanced phase to the most advanced one."""


class ClaimUser(msgspec.Struct, frozen=True):
    """A pod that names a claim.

    Attributes:
        pod: its name.
        created: when it was created, as the API server writes times.
        phase: how far it got; Failed if a reservation for it was lost.
        reason: why it is in this phase.
        message: the same in words.
        node: its node; empty unless it is reserved or bound.
        cards: the indexes of its cards on the node.
    """

    pod: str
    created: str
    phase: Phase = "Pending"
    reason: Reason = "Waiting"
    message: str = ""
    node: str = ""
    cards: tuple[int, ...] = ()


class ClaimUsers:
    """The pods of one claim by UID, counted by phase."""

    def __init__(self) -> None:
        self._users: dict[str, ClaimUser] = {}
        self._counts: Counter[Phase] = Counter()

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._users)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the UIDs."""
        return iter(self._users)

    def values(self) -> Iterator[ClaimUser]:
        """Iterate over the pods."""
        return iter(self._users.values())

    def get(self, uid: str) -> ClaimUser | None:
        """Return a pod, or None if it does not name the claim."""
        return self._users.get(uid)

    @property
    def phase(self) -> Phase:
        """The least advanced phase of the pods; Pending without pods."""
        return _least_advanced(self._counts)

    def phase_after(self, uid: str, user: ClaimUser | None) -> Phase:
        """Return what `phase` would be after `set`."""
        counts, old = self._counts.copy(), self._users.get(uid)
        if old is not None:
            counts[old.phase] -= 1
        if user is not None:
            counts[user.phase] += 1
        return _least_advanced(counts)

    def set(self, uid: str, user: ClaimUser | None) -> None:
        """Set the state of a pod; None removes it."""
        old = self._users.pop(uid, None)
        if old is not None:
            self._counts[old.phase] -= 1
        if user is not None:
            self._users[uid] = user
            self._counts[user.phase] += 1


def _least_advanced(counts: Counter[Phase]) -> Phase:
    return next((phase for phase in ORDER if counts[phase]), "Pending")
