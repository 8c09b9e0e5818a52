"""Violations: promises that were broken, and where."""

import enum
from typing import NamedTuple


class Kind(enum.StrEnum):
    """The promise that was broken."""

    OVER_CAPACITY = "card over its capacity"
    BOUND_TWICE = "pod bound twice"
    NO_ALLOCATION = "bound GPU pod without an allocation"
    NO_NODE = "allocation without a node"
    WRONG_ALLOCATION = "allocation does not match the request"
    SHARED_EXCLUSIVE = "card of an Exclusive claim held by another pod as well"
    HELD_TWICE = "two Leases for one card, or one Lease for two pods"
    NO_LEASE = "pod bound without a Lease for each card of its own"
    DEAD_HOLDER = "Lease of a card that its pod does not have"
    WAITS = "schedulable pod waits too long"
    WRONG_VICTIM = "pod evicted for none of higher priority"
    HALF_A_GANG = "gang half placed for too long"
    LEDGER = "ledger differs from a recount"


class Violation(NamedTuple):
    """One broken promise: its kind, the pod or card, and the details."""

    kind: Kind
    subject: str
    details: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.details}"
