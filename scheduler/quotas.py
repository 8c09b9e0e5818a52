"""What a namespace may still take: its ResourceQuotas less what its pods hold, summed anew for each decision."""

from collections import defaultdict
from collections.abc import Mapping

from allocation.ledger import Ledger
from allocation.quota import UNLIMITED, Room, limits
from allocation.settings import AllocationSettings
from cluster.resource_quota import NamespaceQuotas, ResourceQuota


class Quotas:
    """The limits of every namespace, and whose pods hold something."""

    def __init__(self, *, ledger: Ledger, settings: AllocationSettings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._quotas = NamespaceQuotas()
        self._limits: dict[str, Room] = {}
        self._pods: defaultdict[str, set[str]] = defaultdict(set)

    def set_quota(self, quota: ResourceQuota) -> None:
        """Take the present state of one of a namespace's quotas."""
        self._quotas.set(quota)
        self._sum_up(quota.metadata.namespace)

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget one; the others of its namespace go on."""
        self._quotas.drop(quota)
        self._sum_up(quota.metadata.namespace)

    def hards(self, namespace: str) -> Mapping[str, Mapping[str, str]]:
        """Answer the `spec.hard` of a namespace's quotas by their names."""
        return self._quotas.hards(namespace)

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

    def _sum_up(self, namespace: str) -> None:
        self._limits[namespace] = limits(self._quotas.hards(namespace).values(), self._settings)
