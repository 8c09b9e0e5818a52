"""All quotas: what is used of each, and what is left. `GET /api/quotas` returns it."""

from collections.abc import Callable, Iterable, Mapping

from allocation import quota
from allocation.settings import AllocationSettings
from cluster.gpu_quota import GpuQuota
from cluster.resource_quota import NamespaceQuotas
from scheduler.api.quota_types import LimitView, QuotasView, QuotaView, SingleView
from scheduler.fairness import quota_status, quota_use
from scheduler.fairness.use import Use


def view(
    gpu_quotas: Iterable[GpuQuota],
    resource_quotas: NamespaceQuotas,
    *,
    use_of: Callable[[str], Use],
    settings: AllocationSettings,
) -> QuotasView:
    """Return quotas; `use_of` returns what the pods of a namespace hold. ResourceQuotas without GPUs are left out."""
    views = [_of_gpu_quota(each, use_of(each.metadata.namespace), settings) for each in gpu_quotas]
    for namespace in resource_quotas:
        for name, hard in resource_quotas.hards(namespace).items():
            views.append(_of_resource_quota(namespace, name, hard, use=use_of(namespace), settings=settings))
    counting = (each for each in views if each.kind == "GpuQuota" or each.limits)
    return QuotasView(tuple(sorted(counting, key=lambda each: (each.namespace, each.kind, each.name))))


def _of_gpu_quota(gpu_quota: GpuQuota, use: Use, settings: AllocationSettings) -> QuotaView:
    total, single = gpu_quota.spec.total, gpu_quota.spec.single
    uses, threshold = quota_use.of_total(total, use, settings), total.alert_threshold_percent
    return QuotaView(
        kind="GpuQuota",
        namespace=gpu_quota.metadata.namespace,
        name=gpu_quota.metadata.name,
        pods=use.pods,
        limits=tuple(
            LimitView(each.resource, each.used, each.limit, each.available_percent, each.is_nearly_full(threshold))
            for each in uses
        ),
        fullest=quota_status.fullest(uses),
        alert_threshold_percent=threshold,
        single=SingleView(dict(single.limits), single.max_cards, dict(single.defaults)),
    )


def _of_resource_quota(
    namespace: str, name: str, hard: Mapping[str, str], *, use: Use, settings: AllocationSettings
) -> QuotaView:
    limits = quota.limits({name: hard}, settings).limits
    uses = tuple(sorted(quota_use.of_limits(limits, use.at_limits()), key=lambda each: each.resource))
    return QuotaView(
        kind="ResourceQuota",
        namespace=namespace,
        name=name,
        pods=use.pods,
        limits=tuple(LimitView(each.resource, each.used, each.limit, each.available_percent) for each in uses),
        fullest=quota_status.fullest(uses),
    )
