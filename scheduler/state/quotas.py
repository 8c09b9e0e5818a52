"""The headroom of each namespace: its ResourceQuotas less the reservations of its pods, summed for each decision."""

from collections import defaultdict
from collections.abc import Mapping

from allocation.ledger.ledger import Ledger
from allocation.quota import UNLIMITED, Headroom, limits
from allocation.settings import AllocationSettings
from cluster.resource_quota import NamespaceQuotas, ResourceQuota


class Quotas:
    """The limits of every namespace, and its pods with reservations."""

    def __init__(self, *, ledger: Ledger, settings: AllocationSettings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._quotas = NamespaceQuotas()
        self._limits: dict[str, Headroom] = {}
        self._pods: defaultdict[str, set[str]] = defaultdict(set)

    def set_quota(self, quota: ResourceQuota) -> None:
        """Set the state of one ResourceQuota of a namespace."""
        self._quotas.set(quota)
        self._sum_up(quota.metadata.namespace)

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget one ResourceQuota; the others of its namespace stay."""
        self._quotas.drop(quota)
        self._sum_up(quota.metadata.namespace)

    def hards(self, namespace: str) -> Mapping[str, Mapping[str, str]]:
        """Return the `spec.hard` of the ResourceQuotas of a namespace, by their names."""
        return self._quotas.hards(namespace)

    def add_pod(self, uid: str, namespace: str) -> None:
        """Count the reservation of a pod against its namespace."""
        self._pods[namespace].add(uid)

    def remove_pod(self, uid: str, namespace: str) -> None:
        """Stop counting the reservation of a pod."""
        self._pods[namespace].discard(uid)

    def headroom(self, namespace: str) -> Headroom:
        """Return what the pods of a namespace may still reserve."""
        limit = self._limits.get(namespace, UNLIMITED)
        if limit == UNLIMITED:
            return UNLIMITED
        for uid in self._pods[namespace]:
            reservation = self._ledger.reservation(uid)
            for charge in reservation.charges if reservation is not None else ():
                limit = limit.less(memory_mib=charge.memory_mib, cores=charge.cores, cards=charge.slots)
        return limit

    def _sum_up(self, namespace: str) -> None:
        self._limits[namespace] = limits(self._quotas.hards(namespace), self._settings)
