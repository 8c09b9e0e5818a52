"""The table of `kubectl gpu quota`: one row per limit of each quota."""

from collections.abc import Iterator

from cli.tables import NOTHING, Table
from scheduler.api.quota_types import LimitView, QuotasView, QuotaView


def of_quotas(view: QuotasView, *, count: str, wide: bool, all_namespaces: bool) -> Table:
    """Return the limits on all pods; the wide table adds the threshold of the alert, and what one pod may have.

    `count` is the resource of cards, to whose row `single.maxCards` belongs.
    """
    headers = ["NAMESPACE"] if all_namespaces else []
    headers += ["QUOTA", "RESOURCE", "USED", "LIMIT", "LEFT", "ALERT"]
    headers += ["THRESHOLD", "SINGLE", "DEFAULT"] if wide else []
    rows = []
    for quota in view.quotas:
        head = [quota.namespace] if all_namespaces else []
        head.append(f"{quota.kind.lower()}/{quota.name}")
        rows += [[*head, *row] for row in _rows(quota, count=count, wide=wide)]
    return Table(headers, rows)


def _rows(quota: QuotaView, *, count: str, wide: bool) -> Iterator[list[str]]:
    total = {each.resource: each for each in quota.limits}
    single = _single(quota, count)
    resources = sorted({*total, *single} if wide else total)
    for resource in resources or [NOTHING]:
        row = [resource, *_used(total.get(resource), is_gpu_quota=quota.alert_threshold_percent is not None)]
        if wide:
            threshold = quota.alert_threshold_percent
            row += [NOTHING if threshold is None else f"{threshold}%", *single.get(resource, (NOTHING, NOTHING))]
        yield row


def _used(limit: LimitView | None, *, is_gpu_quota: bool) -> list[str]:
    """Return what is used, the limit, what is left, and whether that is too little."""
    if limit is None:
        return [NOTHING] * 4
    alert = ("yes" if limit.nearly_full else "no") if is_gpu_quota else NOTHING
    return [str(limit.used), str(limit.limit), f"{limit.available_percent}%", alert]


def _single(quota: QuotaView, count: str) -> dict[str, tuple[str, str]]:
    """Return what one pod may have of each resource, and what it gets where it does not say."""
    single = quota.single
    if single is None:
        return {}
    most = {**single.limits, **({count: single.max_cards} if single.max_cards is not None else {})}
    return {
        resource: (str(most.get(resource, NOTHING)), str(single.defaults.get(resource, NOTHING)))
        for resource in {*most, *single.defaults}
    }
