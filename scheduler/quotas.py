"""What a namespace may still take: its ResourceQuotas less what its pods hold, summed anew for each decision."""

from collections import defaultdict
from collections.abc import Callable

import msgspec

from allocation.ledger import Ledger
from allocation.quota import UNLIMITED, Room, limits
from allocation.settings import ResourceNames
from cluster.reflector import ObjectMeta


class _Spec(msgspec.Struct):
    hard: dict[str, str] = {}


class ResourceQuota(msgspec.Struct):
    """A ResourceQuota, of which only `limits.` keys of our resources count here; the rest is Kubernetes' own."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Quotas:
    """The limits of every namespace, and whose pods hold something."""

    def __init__(self, *, ledger: Ledger, names: ResourceNames) -> None:
        self._ledger = ledger
        self._names = names
        self._hards: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        self._limits: dict[str, Room] = {}
        self._pods: defaultdict[str, set[str]] = defaultdict(set)

    def set_quota(self, quota: ResourceQuota) -> None:
        """Take the present state of one of a namespace's quotas."""
        self._change(quota, lambda hards: hards.update({quota.metadata.name: quota.spec.hard}))

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget one; the others of its namespace go on."""
        self._change(quota, lambda hards: hards.pop(quota.metadata.name, None))

    def enter(self, uid: str, namespace: str) -> None:
        """Count what a pod holds for its namespace."""
        self._pods[namespace].add(uid)

    def leave(self, uid: str, namespace: str) -> None:
        """Count it no longer."""
        self._pods[namespace].discard(uid)

    def room(self, namespace: str) -> Room:
        """Answer what the namespace may still take."""
        limit = self._limits.get(namespace, UNLIMITED)
        if limit == UNLIMITED:
            return UNLIMITED
        for uid in self._pods[namespace]:
            holding = self._ledger.holding(uid)
            for charge in holding.charges if holding is not None else ():
                limit = limit.less(memory_mib=charge.memory_mib, cores=charge.cores, cards=charge.slots)
        return limit

    def _change(self, quota: ResourceQuota, change: Callable[[dict[str, dict[str, str]]], object]) -> None:
        namespace = quota.metadata.namespace
        change(self._hards[namespace])
        self._limits[namespace] = limits(self._hards[namespace].values(), self._names)
