"""What the statuses of GpuQuotas should say, and the events about them."""

from collections.abc import Iterable

import msgspec

from allocation.settings import AllocationSettings
from cluster.events import Recorder
from cluster.gpu_quota import GpuQuota, GpuQuotaStatus
from cluster.metadata import Reference
from cluster.resource import GPU_QUOTAS, Resource
from scheduler.fairness import quota_status
from scheduler.state.quotas import Quotas
from scheduler.status_writer import Desired


class QuotaReporter(msgspec.Struct, frozen=True):
    """Reports how much of each GpuQuota is used.

    Attributes:
        quotas: the quotas, and what the pods of their namespaces hold.
        settings: the names and units of resources.
        recorder: of the events.
    """

    quotas: Quotas
    settings: AllocationSettings
    recorder: Recorder

    @property
    def resource(self) -> Resource:
        """The kind."""
        return GPU_QUOTAS

    def objects(self) -> Iterable[GpuQuota]:
        """Return all quotas."""
        return self.quotas.gpu_quotas()

    def current(self, item: GpuQuota) -> GpuQuota | None:
        """Return a quota as it is now; None if it was deleted."""
        return self.quotas.gpu_quota(item.metadata.namespace, item.metadata.name)

    def shown(self, item: GpuQuota) -> GpuQuotaStatus:
        """Return the status that the quota has in the API."""
        return item.status

    def desired(self) -> Desired[GpuQuota, GpuQuotaStatus]:
        """Return the function that works out statuses."""

        def desired(quota: GpuQuota, before: GpuQuotaStatus, now: str) -> GpuQuotaStatus:
            use, generation = self.quotas.use(quota.metadata.namespace), quota.metadata.generation
            return quota_status.desired(
                quota.spec, use, generation=generation, before=before, settings=self.settings, now=now
            )

        return desired

    def announce(self, item: GpuQuota, new: GpuQuotaStatus, before: GpuQuotaStatus) -> None:
        """Record an event if too little is left of a limit, or enough again."""
        meta = item.metadata
        regarding = Reference(GPU_QUOTAS.kind, meta.namespace, meta.name, meta.uid, api_version=GPU_QUOTAS.api_version)
        is_full, was_full = quota_status.is_nearly_full(new), quota_status.is_nearly_full(before)
        note = new.conditions[0].message
        if is_full and not was_full:
            self.recorder.record(
                regarding, type="Warning", reason="AlertThresholdReached", action="Counting", note=note
            )
        if was_full and not is_full:
            self.recorder.record(regarding, type="Normal", reason="CapacitySufficient", action="Counting", note=note)
