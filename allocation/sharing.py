"""How pods share nodes and cards, whatever their capacity would allow."""

import msgspec


class SharingRules(msgspec.Struct, frozen=True):
    """What an administrator allows.

    Attributes:
        most_pods: the most pods with cards on a node; None is unlimited.
        locks_isolation: whether pods share a card only with pods of the same isolation.
    """

    most_pods: int | None = None
    locks_isolation: bool = False


NO_RULES = SharingRules()
"""Capacity alone decides."""
