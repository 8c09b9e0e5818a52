"""A pod that is to be evicted."""

import msgspec

from cluster.metadata import Reference


class Victim(msgspec.Struct, frozen=True):
    """A pod that is to be evicted for one of higher priority.

    Attributes:
        uid: its UID; another pod of its name is never evicted in its place.
        namespace: its namespace.
        name: its name.
        is_guarded: whether it has a PodDisruptionBudget, by which the API server may refuse to evict it.
        violates: whether it is deleted if a PodDisruptionBudget refuses its Eviction, because that never permits any.
    """

    uid: str
    namespace: str
    name: str
    is_guarded: bool = False
    violates: bool = False

    @property
    def reference(self) -> Reference:
        """The reference to it in events."""
        return Reference("Pod", self.namespace, self.name, self.uid)

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"
