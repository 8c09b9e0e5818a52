"""The PodGroups of all namespaces: what they say about the gangs of their names.

A PodGroup says how many pods of its own namespace get nodes together, and where, and nothing else: who may write it may
create such pods.
"""

from collections.abc import Callable, Collection

from cluster.pod_group import KubernetesPodGroup, PodGroup
from cluster.resource import KUBERNETES_POD_GROUPS, POD_GROUPS
from scheduler.gangs.gang import NO_GROUP, GangKey, GroupSpec
from scheduler.gangs.gangs import Gangs

AnyPodGroup = PodGroup | KubernetesPodGroup


class PodGroups:
    """The PodGroups that exist.

    Attributes:
        are_read: whether PodGroups are read at all; otherwise none exists here.
    """

    def __init__(
        self, gangs: Gangs, *, reads: bool, has_queue: bool, on_change: Callable[[Collection[str]], object]
    ) -> None:
        """Tell `gangs` the sizes, and call `on_change` with the UIDs of the pods that wait for another size.

        If kube-scheduler has the queue, it evaluates `spec.schedulingGroup` itself.
        """
        self._gangs = gangs
        gangs.reads_scheduling_group = reads and has_queue
        self.are_read = reads
        self._on_change = on_change

    def get(self, key: GangKey) -> GroupSpec | None:
        """Return what the PodGroups of a gang say, or None if none exists."""
        gang = self._gangs.get(key)
        return gang.group if gang is not None and gang.group != NO_GROUP else None

    def set(self, group: AnyPodGroup, _old: AnyPodGroup | None = None) -> None:
        """Set the state of a PodGroup, whose status changes often."""
        source, spec = _read(group)
        self._set(_key(group), source, spec)

    def drop(self, group: AnyPodGroup) -> None:
        """Forget a PodGroup that does not exist any more."""
        self._set(_key(group), _read(group)[0], None)

    def _set(self, key: GangKey, source: str, spec: GroupSpec | None) -> None:
        gang = self._gangs.get(key)
        if (gang.said_by(source) if gang is not None else None) != spec:
            self._on_change(self._gangs.set_group(key, source, spec))


def _key(group: AnyPodGroup) -> GangKey:
    return GangKey(group.metadata.namespace, group.metadata.name)


def _read(group: AnyPodGroup) -> tuple[str, GroupSpec]:
    """Return the API group of a PodGroup, and what it says."""
    if isinstance(group, PodGroup):
        seconds = group.spec.schedule_timeout_seconds or 0
        return POD_GROUPS.group, GroupSpec(max(1, group.spec.min_member), max(0.0, float(seconds)))
    spec = group.spec
    size = spec.scheduling_policy.gang.min_count if spec.scheduling_policy.gang is not None else 1
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints is not None else ()
    block = topology[0].key if topology else ""
    parent = spec.parent_composite_pod_group_name or ""
    return KUBERNETES_POD_GROUPS.group, GroupSpec(max(1, size), block=block, parent=parent)
