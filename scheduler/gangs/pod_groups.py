"""The PodGroups of all namespaces: what they say about the gangs of their names.

A PodGroup says how many pods of its own namespace get nodes together, and nothing else: who may write it may create
such pods.
"""

from collections.abc import Callable, Collection

from cluster.pod_group import PodGroup
from scheduler.gangs.gang import NO_GROUP, GangKey, GroupSpec
from scheduler.gangs.gangs import Gangs


class PodGroups:
    """The PodGroups that exist.

    Attributes:
        are_read: whether PodGroups are read at all; otherwise none exists here.
    """

    def __init__(self, gangs: Gangs, *, are_read: bool, on_change: Callable[[Collection[str]], object]) -> None:
        """Tell `gangs` the sizes, and call `on_change` with the UIDs of the pods that wait for another size."""
        self._gangs = gangs
        self.are_read = are_read
        self._on_change = on_change

    def get(self, key: GangKey) -> GroupSpec | None:
        """Return what the PodGroup of a gang says, or None if it does not exist."""
        gang = self._gangs.get(key)
        return gang.group if gang is not None and gang.group != NO_GROUP else None

    def set(self, group: PodGroup, _old: PodGroup | None = None) -> None:
        """Set the state of a PodGroup, of which the coscheduling plugin changes the status often."""
        key = GangKey(group.metadata.namespace, group.metadata.name)
        seconds = group.spec.schedule_timeout_seconds or 0
        spec = GroupSpec(max(1, group.spec.min_member), max(0.0, float(seconds)))
        if self.get(key) != spec:
            self._on_change(self._gangs.set_group(key.namespace, key.name, spec))

    def drop(self, group: PodGroup) -> None:
        """Forget a PodGroup that does not exist any more."""
        key = GangKey(group.metadata.namespace, group.metadata.name)
        if self.get(key) is not None:
            self._on_change(self._gangs.drop_group(key.namespace, key.name))
