"""What must never be seen, and where it was."""

import enum
from typing import NamedTuple


class Kind(enum.StrEnum):
    """What was broken."""

    OVER_CAPACITY = "card over its capacity"
    BOUND_TWICE = "pod bound twice"
    NO_ALLOCATION = "bound GPU pod without its allocation"
    NO_NODE = "allocation without a node"
    WRONG_ALLOCATION = "allocation that is not what was asked for"
    WAITS = "live pod that fits waits too long"
    LEDGER = "ledger that is not a recount"


class Violation(NamedTuple):
    """One of them: of which pod or card, and what was seen."""

    kind: Kind
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.what}"
